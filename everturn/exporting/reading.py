"""Reads a whole conversation: its messages, and when, by which model and at what cost each was made."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import JsonValue
from temporalio.api.history.v1 import HistoryEvent
from temporalio.service import RPCError

from everturn.carryover import CarryOver
from everturn.client import listing
from everturn.client.client import Client
from everturn.client.conversation import read_so_far
from everturn.history import steps
from everturn.history.open_calls import OpenCall
from everturn.history.reader import read_steps
from everturn.history.state_by_history import StateByHistory
from everturn.payloads import ModelRequest
from everturn.plans import RunPlan
from everturn.records import Message, Outcome, Stop, Usage
from everturn.temporal import temporal_errors
from everturn.temporal.temporal_errors import not_found


@dataclass(frozen=True)
class MessageFacts:
    """About a message: its turn, and the server's time when it came (for a user's message: when it was taken)."""

    turn: int
    at: datetime
    stop: Stop = "end"
    """Of a reply: why the model stopped."""


@dataclass(frozen=True)
class TurnFacts:
    """One model turn with its reply. A `summary` is not a reply: compaction shows it to the model in place of older
    messages."""

    turn: int
    kind: Literal["reply", "summary"]
    model: str
    """`provider:name`; empty if the history does not have it."""
    started_at: datetime
    finished_at: datetime
    stop: Stop
    """Why the model stopped; `tool_calls` if it wants tools."""
    usage: Usage
    cost_usd: float | None
    """None if the price is not known."""
    agent: str = ""
    """The agent in charge."""
    details: dict[str, JsonValue] = field(default_factory=dict)
    """What the provider said about the reply as a whole: the model and the tier that served it, or why it was
    filtered."""


@dataclass(frozen=True)
class CallTimes:
    """When a tool's last run started and ended. A call that is answered or refused never runs."""

    started_at: datetime
    finished_at: datetime | None = None


@dataclass
class Exported:
    """A conversation as it is now."""

    id: str
    agent: str = ""
    """The agent that it was started with. If it was handed on, `TurnFacts.agent` says to which one."""
    model: str = ""
    status: str = "running"
    """The outcome's status. Without an outcome, the state that lists show, such as `awaiting_approval`; or Temporal's
    own word, such as `failed` or `terminated`."""
    labels: dict[str, Any] = field(default_factory=dict)
    """Its `tenant` and `metadata`, if it was started with any."""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    outcome: Outcome | None = None
    messages: tuple[Message, ...] = ()
    facts: dict[int, MessageFacts] = field(default_factory=dict)
    """About messages, by their positions."""
    turns: list[TurnFacts] = field(default_factory=list)
    calls: dict[str, CallTimes] = field(default_factory=dict)
    effects: dict[str, str] = field(default_factory=dict)
    """Of calls that ran or would have run, by their ids: `read`, `idempotent` or `once`."""
    stalled: bool = False
    """It has stalled at least once."""
    open_calls: tuple[OpenCall, ...] = ()
    """The calls of the last reply, if the transcript does not have their results yet."""

    usage: Usage = field(default_factory=Usage)
    """Of all turns, as `status()` says it: with those whose histories are gone, those that a fork began with, and
    those of agents that it asked."""
    cost_usd: float | None = None
    """The same. None if one of the prices is not known."""


async def read_conversation(client: Client, conversation_id: str) -> Exported:
    """Reads a whole conversation. Raises NotFound, and Unreachable if Temporal does not answer."""
    messages, calls = await read_so_far(client, conversation_id)
    exported = Exported(conversation_id, messages=messages, open_calls=calls)
    reader = _Reader(exported)
    with temporal_errors.explained(client.temporal, conversation_id):
        for run_id in await _list_runs(client, conversation_id):
            await _read_run(client, conversation_id, run_id, reader)
        described = await client.temporal.get_workflow_handle(conversation_id).describe()
    exported.ended_at = described.close_time
    if exported.outcome:
        exported.status = exported.outcome.status
    else:
        exported.status = listing.read_listed(described).status
    return exported


async def _read_run(client: Client, conversation_id: str, run_id: str, reader: _Reader) -> None:
    """Returns nothing if it was deleted since it was listed."""
    try:
        async for step in read_steps(client.temporal, conversation_id, run_id=run_id):
            reader.read_step(step)
    except RPCError as error:
        if not not_found(error):
            raise


async def _list_runs(client: Client, conversation_id: str) -> list[str]:
    """The runs that the namespace still has, oldest first: those that continued as new, and those before a revival."""
    written = conversation_id.replace("'", "''")
    started_at = {
        run.run_id: run.start_time async for run in client.temporal.list_workflows(f"WorkflowId = '{written}'")
    }
    # The list runs a moment behind: each run names the one that it continues.
    run_id = (await client.temporal.get_workflow_handle(conversation_id).describe()).run_id
    while run_id and run_id not in started_at and (first := await _first_event(client, conversation_id, run_id)):
        started_at[run_id] = first.event_time.ToDatetime(tzinfo=UTC)
        run_id = first.workflow_execution_started_event_attributes.continued_execution_run_id
    return sorted(started_at, key=started_at.__getitem__)


async def _first_event(client: Client, conversation_id: str, run_id: str) -> HistoryEvent | None:
    """None if the run's history was deleted."""
    handle = client.temporal.get_workflow_handle(conversation_id, run_id=run_id)
    try:
        return await anext(handle.fetch_history_events(page_size=1), None)
    except RPCError as error:
        if not not_found(error):
            raise
        return None


class _Reader:
    """The times of all that happened, beside the state of the conversation."""

    def __init__(self, exported: Exported) -> None:
        self._exported = exported
        self._started: dict[int, datetime] = {}
        self._by_history = StateByHistory()

    def read_step(self, step: steps.Step) -> None:
        exported = self._exported
        self._by_history.take_step(step)
        state = self._by_history.state
        exported.outcome = self._by_history.outcome
        exported.agent = state.start.agent
        exported.labels = state.start.labels
        exported.usage = state.totals.usage
        exported.cost_usd = state.totals.cost_usd
        exported.model = state.model.name or state.asked_model or exported.model
        exported.stalled |= state.stall is not None
        match step:
            case steps.RunStarted(start=start):
                carry = start.carry or CarryOver()
                # What it does not take over was another conversation's of this id, or came after a reset's point.
                exported.facts = {
                    position: facts for position, facts in exported.facts.items() if position < carry.length
                }
                exported.turns = [turn for turn in exported.turns if turn.turn <= carry.turn]
                if not carry.length or not exported.started_at:
                    exported.started_at = step.at
            case steps.TurnScheduled(request=request):
                self._started[request.turn] = step.at
                self._take_delta(request, step.at)
            case steps.PrefixExtended(request=request):
                self._take_delta(request, step.at)
            case steps.TurnCompleted():
                self._take_turn(step)
            case steps.ToolScheduled(request=call) if call.result is None:  # else hooks see what it brought
                exported.calls[call.call_id] = CallTimes(step.at)
            case (
                steps.ToolCompleted(request=call, result=result) | steps.ActivityEnded(request=call, result=result)
            ) if call.result is None:
                started = exported.calls.get(result.call_id)
                exported.calls[result.call_id] = CallTimes(started.started_at if started else step.at, step.at)
            case _:
                pass

    def _take_delta(self, request: ModelRequest, taken_at: datetime) -> None:
        for position in range(request.position, request.position + len(request.delta)):
            self._exported.facts[position] = MessageFacts(request.turn, taken_at)

    def _take_turn(self, step: steps.TurnCompleted) -> None:
        exported = self._exported
        request = step.request
        reply = step.reply
        model = request.model or (reply.facts.model if reply.facts else exported.model)
        if not request.summarise or reply.message.parts:
            exported.facts[request.position + len(request.delta)] = MessageFacts(request.turn, step.at, reply.stopped)
        exported.effects |= {plan.call_id: plan.effect for plan in reply.plan if isinstance(plan, RunPlan)}
        exported.turns.append(
            TurnFacts(
                turn=request.turn,
                kind="summary" if request.summarise else "reply",
                model=model,
                started_at=self._started.get(request.turn, step.at),
                finished_at=step.at,
                stop=reply.stopped,
                usage=reply.usage,
                cost_usd=reply.cost_usd,
                agent=request.agent,
                details=reply.details,
            )
        )
