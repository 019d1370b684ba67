"""Holds the three accounts of a conversation against each other: the state that the workflow has, the one that its
history says, and its events."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from math import isclose
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.client import WorkflowHistory
from temporalio.converter import DataConverter
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner, WorkflowInstance, WorkflowInstanceDetails

from everturn import names
from everturn.events import (
    AnswerRequested,
    ApprovalRequested,
    Compacted,
    Decided,
    Done,
    Event,
    FellBack,
    HandedOff,
    Replied,
    Stalled,
    Switched,
    ToolCalled,
    ToolFinished,
    ToolLost,
    ToolStarted,
    TurnBatched,
    TurnStarted,
    WorkerAwaited,
)
from everturn.history import steps
from everturn.history.event_reader import EventReader
from everturn.history.reader import HistoryReader
from everturn.history.state_by_history import StateByHistory
from everturn.records import Message, Usage
from everturn.sizes import size_of
from everturn.state import State
from everturn.workflows.conversation import ConversationWorkflow

LOCAL_SECONDS = 10.0
"""What the local tools of one workflow task take at the most."""

NOT_COMPARED = {
    "last_reply.in_answer": "for webhooks alone; a history has no answer that began and was cut short in one task",
    "prefix._observer": "who is told what the model has seen: a reader has nobody to tell",
    "unseen.messages": "compared together with the inbox: an outcome has both in one",
}
"""The fields of a state that may differ, and why."""

IN_ANOTHER_FORM: dict[str, Callable[[State], Any]] = {
    "prompts": lambda state: vars(state.prompts).copy(),
    "in_charge": lambda state: vars(state.in_charge) | {"views_by_agent": dict(state.in_charge.views_by_agent)},
    "inbox.taken_ids": lambda state: (state.message_ids, state.inbox.taken_ids.forgotten),
    # What is too large to hand on, the conversation knows by its place.
    "prefix.earlier": lambda state: state.prefix.earlier is not None,
    # What was left to answer may have begun, or not.
    "cancelled": lambda state: "" if state.ended else state.cancelled,
    "inbox.messages": lambda state: [] if state.ended else _shape(state.inbox.messages),
    "inbox.late": lambda state: _shape(state.inbox.late),
    "pending": lambda state: {
        call_id: (one.call, one.plan, one.asked.model_copy(update={"since": 0.0}), _About(one.asked.since))
        for call_id, one in state.pending.items()
    },
}
"""The fields of which both sides know the same, though not as the same value; and those that change in place."""

READ_OFF: dict[str, Callable[[State], Any]] = {
    "name": lambda state: state.name,
    "idle": lambda state: state.is_idle,
    "in events": lambda state: state.unseen.in_events,
    "answered": lambda state: state.is_answered and not state.ended,  # an outcome does not say what of it was
    "what is unanswered": lambda state: _shape([*state.unseen.messages, *state.inbox.messages]),
}


OF_A_TURN_WITHOUT_EVENTS = {"unseen._in_events", "in events"}
"""Which results are in events: to the conversation, those of a turn that it has begun have them all."""


def ends_in_a_turn_without_events(step: steps.Step, before: State) -> bool:
    """Whether the conversation has begun a turn and been cancelled in one workflow task. `before`: what its history
    says up to this step."""
    return isinstance(step, steps.RunClosed) and step.outcome is not None and step.outcome.turns > before.turn


def facts(state: State) -> dict[str, Any]:
    """All that both sides know, as it is now: every field, the private ones too. Nothing in it changes any more."""
    fields = {name: value for name, value in _fields(state) if name not in NOT_COMPARED}
    forms = (IN_ANOTHER_FORM | READ_OFF).items()
    return fields | {name: form(state) for name, form in forms}


def _fields(state: State) -> Iterator[tuple[str, Any]]:
    for name, value in vars(state).items():
        if value in state.drawers:
            yield from ((f"{name}.{field}", part) for field, part in vars(value).items())
        else:
            yield name, value


class _About(float):
    """A time. A conversation's clock goes on by what its local tools take; its history has when its tasks began."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, float) and abs(float(self) - float(other)) < LOCAL_SECONDS

    __hash__ = float.__hash__


def _shape(messages: Sequence[Message]) -> list[Any]:
    """What a history can know of messages: not the words in which the conversation tells of a call that did not run."""
    return [
        (message.role, [getattr(part, "call_id", None) or _words(part) for part in message.parts])
        for message in messages
    ]


def _words(part: Any) -> str:
    """An outcome cuts what is long, and leaves out what a provider put beside it."""
    text = getattr(part, "text", part.kind)
    return (
        "long"
        if size_of(part.model_copy(update={"extra": {}})) > 1_000 or "\n[Cut: " in text or "\n[Left out" in text
        else text
    )


class _Watching(UnsandboxedWorkflowRunner):
    """Sees what a workflow had come to with each of its tasks; clearing it away is none of that."""

    def __init__(self, begins: Collection[int]) -> None:
        """`begins`: the events that the tasks to look at began with."""
        super().__init__()
        self._begins = begins
        self.facts: dict[int, dict[str, Any]] = {}
        """By the event that the task began with."""

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        instance: Any = super().create_instance(det)
        activate, last = instance.activate, 0

        def watched(act: WorkflowActivation) -> WorkflowActivationCompletion:
            nonlocal last
            removed = any(job.HasField("remove_from_cache") for job in act.jobs)
            # A task is over when the next one begins: one that runs local tools is activated several times.
            over = removed or act.history_length > last
            if over and last in self._begins and last not in self.facts:
                self.facts[last] = facts(instance._object._state)
            last = last if removed else act.history_length
            completion: WorkflowActivationCompletion = activate(act)
            return completion

        instance.activate = watched
        made: WorkflowInstance = instance
        return made


async def check(history: WorkflowHistory, converter: DataConverter, *, in_threads: bool = False) -> None:
    """Replays a history, and holds what comes of it against what is read off it, after each task. `in_threads`: each
    step in a thread, as a worker does it; else in the caller's, which costs less."""
    tasks = _tasks(history.events)
    if not tasks:
        return  # nobody has looked after it, and a replay of nothing never ends
    runner = _Watching(tasks)
    options: dict[str, Any] = {"unsandboxed_workflow_runner": runner, "data_converter": converter}
    options["debug_mode"] = not in_threads  # and no limit on how long a step may take: the machine may be busy
    options["build_id"] = "replay"  # the SDK's own is a hash of all modules, read from the disk
    await Replayer(workflows=[ConversationWorkflow], **options).replay_workflow(history)
    assert [*tasks][-1] in runner.facts, f"{history.workflow_id}: nobody saw what it came to"
    reader, by_history, told = HistoryReader(converter), StateByHistory(), Told()
    begun_by_end = {end: begun for begun, end in tasks.items()}
    for event in history.events[: max(begun_by_end)]:
        step = await reader.read_event(event)
        passed_over = OF_A_TURN_WITHOUT_EVENTS if ends_in_a_turn_without_events(step, by_history.state) else set()
        by_history.take_step(step)
        told.take(step)
        held = runner.facts.get(begun_by_end.get(event.event_id, 0))
        failed = isinstance(step, steps.RunClosed) and not (step.outcome or step.next_run_id)  # nothing was come to
        if held is None or failed:
            continue
        read = facts(by_history.state)
        if held["ended"] and not read["ended"] and history.events[-1].event_type == _COMPLETED:
            continue  # it ends in more than one task, as what begins its webhook is slow: the last one is compared
        differences = {name: (held[name], read[name]) for name in held if held[name] != read[name]}
        differences = {name: both for name, both in differences.items() if name not in passed_over}
        differences |= told.differences(by_history.state)
        assert not differences, (
            f"{history.workflow_id}, event {event.event_id} of {len(history.events)}: "
            f"the workflow's first, the history's second: {differences}"
        )


def _tasks(history: Sequence[HistoryEvent]) -> dict[int, int]:
    """The workflow tasks that were completed: the event that each began with, and the last one that it wrote. What
    comes after the last of them the conversation has not taken in."""
    tasks: dict[int, int] = {}
    begun = 0
    for event in history:
        attributes = getattr(event, event.WhichOneof("attributes") or "", None)
        fields = attributes.DESCRIPTOR.fields_by_name if attributes is not None else ()
        follows = "workflow_task_completed_event_id" in fields or event.event_type in _OF_UPDATES
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
            begun = event.workflow_task_completed_event_attributes.started_event_id
            tasks[begun] = event.event_id
        elif follows and begun and tasks[begun] == event.event_id - 1:
            tasks[begun] = event.event_id
    return tasks


_COMPLETED = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED

_OF_UPDATES = (
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_COMPLETED,
)


class Told:
    """What somebody knows who has seen the events of this run and those of the runs before it."""

    def __init__(self) -> None:
        self._reader = EventReader()
        self.asked: dict[str, Any] = {}
        self._answers: set[str] = set()
        """The calls that wait for an answer, which no approval of every call is about."""
        self.turn = 0
        self._called_in: dict[str, int] = {}
        """The turns of the calls."""
        self._contradictions: list[str] = []
        """Events that name another turn than their own, or another agent in charge than those before them."""
        self.last_text: str | None = None
        self.done = False
        self.agent = ""
        self.stall: str | None = None
        """Its cause."""
        self._stalled_call = ""
        """The call that it is about, if it is about one."""
        self.paused: bool | None = False
        """None if it can't be known."""
        self.model: str | None = None
        """The one that goes on in place of another; None if it can't be known."""
        self._fallback_asked = True
        """The model that was fallen back to has been asked, if there was one."""
        self._cut_short = self._closing = False
        """The turn was cancelled, or the conversation closed: a turn that fails then stalls nothing."""
        self.usage, self.cost_usd = Usage(), 0.0
        self._priced = True
        """Every price is known."""
        self._counted = True
        """Nothing was spent of which this does not know how much."""

    def take(self, step: steps.Step) -> None:
        self._take_untold(step)
        for event in self._reader.read_step(step, run_id="0" * 36):
            self._take(event)
        if isinstance(step, steps.ToolRunFailed) and step.stalled and self.stall:
            self._stalled_call = step.request.call_id

    def _take_untold(self, step: steps.Step) -> None:
        """What no event tells: what the run began with, and what was spent beside whole replies."""
        match step:
            case steps.CancelRequested():
                self._cut_short = True
                if not self._fallback_asked:
                    self.model = None  # what failed together with that may have come before it, or after
            case steps.CallExpired(call_id=call_id):
                self.asked.pop(call_id, None)  # its result is told with the next turn
            case steps.RunStarted(start=start) if carry := start.carry:
                self.usage, self.cost_usd, self._priced = carry.usage, carry.cost_usd or 0.0, carry.cost_usd is not None
                self.paused = carry.paused
            case steps.TurnCompleted(request=request, reply=reply) if request.summarise and reply.message.parts:
                self._spend(reply.usage, reply.cost_usd)
            case steps.TurnCompleted(request=request, reply=reply) if reply.message.cut_short and not request.summarise:
                if not reply.message.parts:
                    self._spend(reply.usage, reply.cost_usd)
            case steps.ToolCompleted(outcome=outcome) if outcome:
                self._spend(outcome.usage, outcome.cost_usd)
            case steps.TurnCancelled():
                self._counted = False
            case _:
                pass

    def _take(self, event: Event) -> None:
        self._look_at_turn(event)
        self._look_at_agent(event)
        match event:
            case ApprovalRequested(call=call) | AnswerRequested(call=call):
                self.asked[call.call_id] = (event.reason, event.why)
                if isinstance(event, AnswerRequested):
                    self._answers.add(call.call_id)
                else:
                    self._answers.discard(call.call_id)  # a rule asks for an approval first
            case Decided(call_id="*", verdict="approve"):
                self.asked = {one: why for one, why in self.asked.items() if one in self._answers}
            case Decided(call_id=call_id):
                self.asked = {one: why for one, why in self.asked.items() if call_id not in ("*", one)}
            case ToolStarted(call_id=call_id):
                self.asked.pop(call_id, None)
                if call_id == self._stalled_call:
                    self.stall, self._stalled_call = None, ""
            case ToolFinished(result=result):
                self.asked.pop(result.call_id, None)
            case TurnStarted(turn=turn, agent=agent):
                self.turn, self.asked, self.agent = turn, {}, agent
                self.stall, self._cut_short, self._fallback_asked = None, False, True
            case HandedOff(agent=agent):
                self.agent, self.model = agent, None
            case FellBack(model=model) if not (self._cut_short or self._closing):
                self.model, self._fallback_asked = model, False
            case Stalled(cause=cause):
                self.stall, self._stalled_call, self.model = cause, "", None
            case Switched():
                self._switch(event)
            case Replied(message=message, usage=usage, cost_usd=cost_usd):
                self._spend(usage, cost_usd)
                self.last_text = self.last_text if message.cut_short else message.text
            case Done(outcome=outcome):
                self.done, self.asked = True, {}
                self.stall, self.paused = None, False
                if outcome:
                    self.turn = max(self.turn, outcome.turns) if self.turn else self.turn
                    self.usage, self.cost_usd = outcome.usage, outcome.cost_usd or 0.0
                    self._priced, self._counted = outcome.cost_usd is not None, True
            case _:
                pass

    def _look_at_turn(self, event: Event) -> None:
        match event:
            case ToolCalled(call=call):
                self._called_in[call.call_id] = turn = self.turn
            case ToolStarted(call_id=call_id) | ToolLost(call_id=call_id):
                turn = self._called_in.get(call_id, 0)
            case ToolFinished(result=result):
                turn = self._called_in.get(result.call_id, 0)
            case ApprovalRequested(call=call) | AnswerRequested(call=call):
                turn = self._called_in.get(call.call_id, 0)
            case Replied() | Stalled() | FellBack() | HandedOff() | Compacted() | WorkerAwaited() | TurnBatched():
                turn = self.turn
            case _:
                return
        if turn and event.turn != turn:  # before the run's first turn, it is that of an earlier run
            self._contradictions.append(f"{event.kind} of turn {turn} says {event.turn}")

    def _look_at_agent(self, event: Event) -> None:
        """A turn is of the agent in charge, and who hands over is in charge."""
        match event:
            case TurnStarted(agent=agent) | HandedOff(by=agent) if self.agent:
                if names.unversioned(agent) != names.unversioned(self.agent):
                    self._contradictions.append(f"{event.kind} says {agent}, and {self.agent} is in charge")
            case _:
                pass

    def _switch(self, event: Switched) -> None:
        match event.name:
            case "pause":
                self.paused = True
            case "resume":
                # Whether only the stall is resumed, and with which model, is not told.
                self.paused = None if self.paused and self.stall else False
                self.stall, self.model = None, None
            case "cancel_turn" | "close":  # which denies whatever waits
                self.asked, self.stall, self.paused = {}, None, False
                self._cut_short, self._closing = True, self._closing or event.name == "close"
                if not self._fallback_asked:
                    self.model = None  # an update is told after what came in with it, and holds before: none was asked
            case _:
                pass

    def _spend(self, usage: Usage, cost_usd: float | None) -> None:
        self.usage, self.cost_usd = self.usage + usage, self.cost_usd + (cost_usd or 0.0)
        self._priced = self._priced and cost_usd is not None

    def differences(self, state: State) -> dict[str, Any]:
        known: dict[str, Any] = {}
        if state.answering:
            asked = {call_id: one.asked for call_id, one in state.pending.items()}
            known["events' pending"] = self.asked, {one: (it.reason, it.in_words) for one, it in asked.items()}
        if self.turn:
            known["events' turn"] = (self.turn, state.turn)
        if self.last_text is not None:
            known["events' last text"] = (self.last_text, state.last_reply.text)
        if self.agent:
            known["events' agent"] = (self.agent, state.agent)
        if self.model is not None:
            known["events' model"] = (self.model, state.model.name)
        if self.paused is not None:
            known["events' pause"] = (self.paused, state.paused)
        known["events' contradictions"] = (self._contradictions, [])
        known["events' stall"] = (self.stall, state.stall.cause if state.stall else None)
        known["events' usage"] = (
            self.usage if self._counted else _least(self.usage, state.totals.usage),
            state.totals.usage,
        )
        known["events' cost"] = (self._cost(state.totals.cost_usd), state.totals.cost_usd)
        known["events' end"] = (self.done, state.ended)
        return {name: both for name, both in known.items() if both[0] != both[1]}

    def _cost(self, cost_usd: float | None) -> float | None:
        """The state's own, if it is as told: what is told in another order adds up to a little less or more."""
        if not self._counted and (cost_usd is None or (self._priced and cost_usd >= self.cost_usd)):
            return cost_usd
        told = self.cost_usd if self._priced else None
        return cost_usd if told is not None and cost_usd is not None and isclose(told, cost_usd) else told


def _least(told: Usage, spent: Usage) -> Usage:
    """What was spent, if it is no less than what was told."""
    counted = spent.model_dump()
    return spent if all(counted[name] >= tokens for name, tokens in told.model_dump().items()) else told
