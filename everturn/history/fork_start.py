"""Forks: what a conversation had said and counted at the end of one of its turns, read from its history alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from temporalio.client import Client
from temporalio.converter import DataConverter
from temporalio.service import RPCError

from everturn.carryover import Beginning, PackedTranscript, StoredInRun, WorkerFacts
from everturn.errors import NotFound, Refused
from everturn.history.reader import first_step, read_steps
from everturn.history.revival import next_life
from everturn.history.state_by_history import StateByHistory
from everturn.history.steps import RunStarted, Step, ToolCompleted, TranscriptKept, TurnCompleted, TurnScheduled
from everturn.history.transcript import Transcript, read_transcript
from everturn.packed_messages import pack
from everturn.payloads import ModelReply, Start
from everturn.records import Message, Outcome, Part, ResultPart, ToolResult, results_in
from everturn.sizes import MAX_FORK_LINE_BYTES, MAX_PACKED_AT_START_BYTES, size_of
from everturn.state import State
from everturn.temporal.temporal_errors import not_found

IDLE_SECONDS = 7 * 24 * 3600.0
"""How long a fork waits for its first message, if the conversation itself would not have waited for one."""


@dataclass(frozen=True)
class Changes:
    """How a fork differs from the conversation whose beginning it shares."""

    message: str | tuple[Part, ...] | None = None
    """What is said after the turn, in the form of Start.message."""
    provider: str = ""
    tools: tuple[str, ...] | None = None
    """For the answer to that message."""
    model: str | None = None
    results: Mapping[str, tuple[ResultPart, ...]] = field(default_factory=dict)
    """What calls of that turn returned in the fork, by call id."""


async def start_of_fork(
    client: Client,
    conversation_id: str,
    run_id: str,
    *,
    turn: int,
    target_converter: DataConverter | None = None,
    changes: Changes | None = None,
) -> Start:
    """The input of a conversation that goes on after that turn. With a message and turn 0, it starts from the
    beginning. `run_id` is the latest run's. `target_converter`: that of another namespace. The history won't be there,
    so the whole transcript is brought along. Raises Refused if a conversation can't go on from that turn, and
    NotFound if its history is gone."""
    changes = changes or Changes()
    if not isinstance(turn, int) or isinstance(turn, bool) or turn < 0 or (turn == 0 and changes.message is None):
        raise Refused(f"Conversation {conversation_id!r} has no turn {turn!r}.", cure="Turns count from 1.")
    latest_run = StoredInRun(run_id=run_id, conversation_id=conversation_id)
    origin = await _run_of(client, latest_run, turn)
    if turn == 0:
        return await _with_rules_of(client, latest_run, await _start_anew(client, origin, changes))
    here = origin.run_id
    point = _ForkPoint(turn)
    while here:
        origin = origin.model_copy(update={"run_id": here})
        here = ""
        async for step in read_steps(client, origin.conversation_id, run_id=origin.run_id):
            if point.is_reached:
                point.bring_along(step)
                continue
            point.take_step(step)
            here = getattr(step, "next_run_id", "")
        point.by_history.take_in()
        if point.is_reached:
            start = await _build_start(client, origin, point, changes, target_converter=target_converter)
            return await _with_rules_of(client, latest_run, start)
    raise Refused(
        f"Conversation {conversation_id!r} can't be forked at turn {turn}: {point.missing_reason}.", cure=point.cure
    )


class _ForkPoint:
    """The fold up to the end of one turn: its reply and, if the reply has calls, their results."""

    def __init__(self, turn: int) -> None:
        self.by_history = StateByHistory()
        """The state at the turn's reply. Its transcript goes on to the results."""
        self._turn = turn
        self._summary = False
        """Whether the model wrote a summary in that turn. Such a turn does not count as one."""
        self._last = 0
        """The last turn that has a reply."""
        self._replied: list[int] = []
        """The turns before this one that have a reply, and not only a summary: the last one of earlier runs, and all of
        this run."""
        self.answer: dict[str, Any] = {}
        """What the answer had as the turn began. Once it has ended, as by a `close` beside the reply, the state has
        none of that."""

    def take_step(self, step: Step) -> None:
        match step:
            case TurnCompleted(request=request, reply=reply):
                self._last = request.turn
                if request.turn == self._turn:
                    self._summary = request.summarise
                elif request.turn < self._turn and not request.summarise:
                    self._replied.append(request.turn)
                if self.reply is None:
                    self.by_history.take_step(step)
                    return
                self.transcript.take_step(step)
                if request.summarise:
                    self.state.take_summary(reply)
            case ToolCompleted(outcome=Outcome(usage=usage, cost_usd=cost)) if self.reply:
                self.transcript.take_step(step)
                self.state.totals.add_usage(usage, cost)
            case _ if self.reply is None:
                self.by_history.take_step(step)
                if isinstance(step, RunStarted):
                    self._last = self.state.turn
                    carry = step.start.carry
                    if carry and carry.turn:
                        self._replied.append(carry.called_in or carry.turn)
                if isinstance(step, TurnScheduled):
                    self.answer = {"repairs": self.state.last_reply.corrections, "tools": self.state.tools}
            case _:
                self.transcript.take_step(step)

    def bring_along(self, step: Step) -> None:
        """Whether what follows the turn only says where the messages of earlier runs are now."""
        if isinstance(step, TranscriptKept):
            self.transcript.take_step(step)

    @property
    def state(self) -> State:
        return self.by_history.state

    @property
    def transcript(self) -> Transcript:
        return self.by_history.transcript

    @property
    def reply(self) -> ModelReply | None:
        """The turn's own calls."""
        return self.by_history.reply if self.state.turn == self._turn else None

    @property
    def is_reached(self) -> bool:
        return self.reply is not None and (not self.reply.plan or self.results_position() is not None)

    def results_position(self) -> int | None:
        """The position of the message with the results of the reply's calls. It is written with the next turn or with
        the end, and None until then. A summary may come between the reply and this message."""
        transcript = self.transcript
        for index in range(max(0, self.state.prefix.position - transcript.base), len(transcript.messages)):
            if transcript.messages[index].role == "tool":
                return transcript.base + index
        return None

    @property
    def missing_reason(self) -> str:
        if self.reply:
            calls = ", ".join(repr(call.call_id) for call in self.reply.message.tool_calls)
            return f"not all of its calls have results yet ({calls})"
        if self._summary:
            return "in that turn, the model only wrote a summary"
        if self._turn <= self._last:
            return "that turn was cut short before the model replied"
        if self._last:
            return f"its last reply is that of turn {self._last}"
        return "the model has not replied yet"

    @property
    def cure(self) -> str:
        is_open = self.reply is None and self.by_history.calls.planned  # the last reply's calls
        works = self._replied[:-1] if is_open else self._replied
        if self.reply:
            earlier = f", or fork at turn {works[-1]}" if works else ""
            return f"Wait for turn {self._turn + 1}{earlier}."
        if works:
            return f"Fork at turn {works[-1]}."
        if self._last:
            return f"Wait for turn {self._last + 1}."
        return "Wait for the first reply."


async def _run_of(client: Client, latest_run: StoredInRun, turn: int) -> StoredInRun:
    """The run in which the turn began. Goes back from run to run, and on to what was revived or forked."""
    run = latest_run
    while True:
        started = await _first_step(client, run)
        carry = started.start.carry if started else None
        if started is None or carry is None or carry.turn < turn:
            return run
        before = carry.origin
        if started.previous_run_id:
            before = StoredInRun(run_id=started.previous_run_id)
        if before is None:
            raise NotFound(f"Turn {turn} of conversation {latest_run.conversation_id!r} was in none of its runs.")
        run = StoredInRun(run_id=before.run_id, conversation_id=before.conversation_id or run.conversation_id)


async def _first_step(client: Client, run: StoredInRun) -> RunStarted | None:
    try:
        return await first_step(client, run.conversation_id, run.run_id)
    except RPCError as error:
        if not not_found(error):
            raise
        raise NotFound(
            f"The history of conversation {run.conversation_id!r} is deleted up to run "
            f"{run.run_id}: the namespace's retention is over.",
            cure="Fork at a later turn.",
        ) from None


async def _with_rules_of(client: Client, latest: StoredInRun, start: Start) -> Start:
    """The start with the rules of today: what people said of the conversation's calls after that turn holds for the
    fork's, too, and what they took back holds no more."""
    by_history = StateByHistory(run_id=latest.run_id)
    async for step in read_steps(client, latest.conversation_id, run_id=latest.run_id):
        by_history.take_step(step)
    by_history.take_in()
    rules = {"policy": by_history.state.policy, "inherited": by_history.state.inherited}
    if start.carry is None:
        return start.model_copy(update=rules)
    return start.model_copy(update={"carry": start.carry.model_copy(update=rules)})


async def _start_anew(client: Client, first: StoredInRun, changes: Changes) -> Start:
    """The conversation's own start with another message: with the transcript that it was given, or with none."""
    started = await _first_step(client, first)
    if started is None or (started.start.carry and started.start.carry.origin):
        raise NotFound(
            f"The beginning of conversation {first.conversation_id!r} is deleted.", cure="Fork at a later turn."
        )
    # Whoever asked the first one, or is told when it waits, is not asked by this one.
    alone = {"message_id": None, "caller": None, "notify": None, "webhooks": ()}
    return started.start.model_copy(
        update={**alone, **_message_changes(changes), "model": changes.model or started.start.model}
    )


def _message_changes(changes: Changes) -> dict[str, Any]:
    if changes.message is None:
        return {}
    return {"message": changes.message, "provider": changes.provider, "tools": changes.tools}


def _with_results(messages: Sequence[Message], results: Mapping[str, tuple[ResultPart, ...]]) -> list[Message]:
    """Raises Refused for a call that has no result among these messages."""
    if unknown := results.keys() - results_in(messages).keys():
        calls = ", ".join(map(repr, results_in(messages))) or "none"
        raise Refused(f"The turn has no call {min(unknown)!r}; its calls with results are {calls}.", cure="Name one.")
    return [
        message.model_copy(
            update={
                "parts": tuple(
                    part.model_copy(update={"content": results[part.call_id], "is_error": False, "decision": None})
                    if isinstance(part, ToolResult) and part.call_id in results
                    else part
                    for part in message.parts
                )
            }
        )
        for message in messages
    ]


async def _build_start(
    client: Client, origin: StoredInRun, point: _ForkPoint, changes: Changes, *, target_converter: DataConverter | None
) -> Start:
    assert point.reply is not None
    state = point.state
    start = state.start
    final = point.reply.final
    end = state.prefix.position
    if point.reply.plan and (position := point.results_position()) is not None:
        end = position + 1
    transcript = [*await read_transcript(client, origin.conversation_id, point.transcript)]
    transcript[state.prefix.position : end] = _with_results(transcript[state.prefix.position : end], changes.results)
    # Who forks says what comes next: what people had said to the other conversation by then is not asked again.
    new: dict[str, Any] = {"owed": not final, "inbox": (), "message_ids": ()}
    if not final:
        new |= point.answer
    if changes.model:
        new["model"] = changes.model
    new |= {"budget": None, "began": Beginning(agent=start.agent, fork_of=origin.conversation_id)}
    handed = next_life(state, transcript[:end], origin=origin).model_copy(update=new)
    if target_converter:
        packed = PackedTranscript(data=pack(transcript[: handed.length]))
        if len(packed.data) > MAX_PACKED_AT_START_BYTES and target_converter.external_storage is None:
            raise Refused(
                f"The transcript of conversation {origin.conversation_id!r} can't be "
                "copied into the fork: packed, it has "
                f"{len(packed.data):,} bytes, and the limit is {MAX_PACKED_AT_START_BYTES:,}.",
                cure="Set EVERTURN_STORAGE (or connect(storage=)) for both, on clients and workers.",
            )
        # The other namespace may have other search attributes, and another retention.
        facts: WorkerFacts | None = None
        if handed.facts and handed.facts.limits is not None and handed.agent:  # the first agent's, for good
            facts = WorkerFacts(limits=handed.facts.limits, webhook=handed.facts.webhook)
        handed = handed.model_copy(update={"earlier": packed, "origin": None, "keep_by": None, "facts": facts})
    keep_open = start.keep_open
    if final and keep_open is None and changes.message is None:
        keep_open = IDLE_SECONDS
    silent = {"message": (), "message_id": None, "provider": "", "tools": None, "webhooks": ()}
    # An id says nothing in another namespace, where it may be another conversation's.
    line = () if target_converter else _fork_line(origin.conversation_id, *start.forked_from)
    return start.model_copy(
        update={**silent, **_message_changes(changes), "keep_open": keep_open, "forked_from": line, "carry": handed}
    )


def _fork_line(*ids: str) -> tuple[str, ...]:
    """The farthest are left out if there are too many to be carried along."""
    line = tuple(dict.fromkeys(ids))
    while size_of(line) > MAX_FORK_LINE_BYTES:
        line = line[: len(line) // 2]
    return line
