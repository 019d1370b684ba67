"""Holds the three accounts of a conversation against each other: the state that the workflow has, the one that its
history says, and its events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.client import WorkflowHistory
from temporalio.converter import DataConverter
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner, WorkflowInstance, WorkflowInstanceDetails

from everturn.events import (
    AnswerRequested,
    ApprovalRequested,
    Decided,
    Done,
    Replied,
    Switched,
    ToolFinished,
    ToolStarted,
    TurnStarted,
)
from everturn.history import steps
from everturn.history.event_reader import EventReader
from everturn.history.reader import HistoryReader
from everturn.history.state_by_history import StateByHistory
from everturn.records import Message
from everturn.sizes import size_of
from everturn.state import State
from everturn.workflows import ConversationWorkflow

FIELDS = (
    *("base", "position", "digest", "view", "summary_due", "turn", "reply_awaited", "tool_calls", "usage", "cost_usd"),
    *("last_text", "output", "output_problem", "repairs", "model", "facts", "answering", "final", "stall", "paused"),
    *("cancelled", "closing", "abandoned", "ended", "idle", "answered", "message_ids", "name", "started_at", "policy"),
    *("agent", "limit", "limits", "keep_by", "budget", "told", "recorded"),
)


def facts(state: State) -> dict[str, Any]:
    """All that both sides know."""
    return {name: getattr(state, name) for name in FIELDS} | {
        "prompts": state.prompts.asked,
        "ids forgotten": state.has_taken(["an id that no message had"]),
        "earlier": state.earlier is not None,  # what is too large to hand on, the conversation knows by its place
        "handoffs": (state.in_charge.handoffs, state.in_charge.views),
        "what is unanswered": _shape([*state.unseen, *state.inbox]),  # an outcome has both in one
        "cancelled": "" if state.ended else state.cancelled,  # what was left to answer may have begun, or not
        "answered": state.answered and not state.ended,  # an outcome does not say what of it was
        "inbox": [] if state.ended else _shape(state.inbox),
        "late": _shape(state.late),
        "pending": {call_id: (one.shown(), one.asked.doubtful) for call_id, one in state.pending.items()},
    }


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
    """Sees what a workflow had come to when it was looked after last; clearing it away is none of that."""

    facts: dict[str, Any]

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        instance: Any = super().create_instance(det)
        activate = instance.activate

        def watched(act: WorkflowActivation) -> WorkflowActivationCompletion:
            # Once, and not after each step: a long inbox takes longer to look at than the step itself.
            if any(job.HasField("remove_from_cache") for job in act.jobs):
                self.facts = facts(instance._object._state)
            completion: WorkflowActivationCompletion = activate(act)
            return completion

        instance.activate = watched
        made: WorkflowInstance = instance
        return made


async def check(history: WorkflowHistory, converter: DataConverter) -> None:
    """Replays a history, and holds what comes of it against what is read off it."""
    taken_in = _taken_in(history.events)
    runner = _Watching()
    # Without a limit on how long a step may take: the machine may be busy.
    options: dict[str, Any] = {"unsandboxed_workflow_runner": runner, "data_converter": converter, "debug_mode": True}
    replayer = Replayer(workflows=[ConversationWorkflow], **options)
    await replayer.replay_workflow(history)
    if not taken_in:
        return  # nobody has looked after it, and a replay of nothing never ends
    if len(taken_in) < len(history.events):
        await replayer.replay_workflow(WorkflowHistory(history.workflow_id, taken_in))
    held = runner.facts
    reader, by_history, told = HistoryReader(converter), StateByHistory(), _Told()
    last: Any = None
    for event in taken_in:
        last = await reader.read(event)
        by_history.take(last)
        told.take(last)
    if isinstance(last, steps.RunClosed) and not (last.outcome or last.next_run_id):
        return  # it failed: nothing was come to
    read = facts(by_history.state)
    differences = {name: (held[name], read[name]) for name in held if held[name] != read[name]}
    differences |= told.differences(by_history.state)
    assert not differences, f"{history.workflow_id}: the workflow's first, the history's second: {differences}"


def _taken_in(history: Sequence[HistoryEvent]) -> list[HistoryEvent]:
    """Without what came since the conversation was looked after last: a replay would go on with it, on its own."""
    kept: list[HistoryEvent] = []
    done = 0
    for event in history:
        kept.append(event)
        attributes = getattr(event, event.WhichOneof("attributes") or "", None)
        fields = attributes.DESCRIPTOR.fields_by_name if attributes is not None else ()
        follows = "workflow_task_completed_event_id" in fields or event.event_type in _OF_UPDATES
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED or (follows and done == len(kept) - 1):
            done = len(kept)
    return kept[:done]


_OF_UPDATES = (
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_COMPLETED,
)


class _Told:
    """What somebody knows who has seen the events."""

    def __init__(self) -> None:
        self._reader = EventReader()
        self.asked: dict[str, Any] = {}
        self._answers: set[str] = set()
        """The calls that wait for an answer, which no approval of every call is about."""
        self.turn = 0
        self.last_text: str | None = None
        self.done = False

    def take(self, step: steps.Step) -> None:
        if isinstance(step, steps.Expired):
            self.asked.pop(step.call_id, None)  # its result is told with the next turn
        for event in self._reader.read(step, run_id="0" * 36):
            match event:
                case ApprovalRequested(call=call) | AnswerRequested(call=call):
                    self.asked[call.call_id] = (event.reason, event.why)
                    if isinstance(event, AnswerRequested):
                        self._answers.add(call.call_id)
                case Decided(call_id="*", verdict="approve"):
                    self.asked = {one: why for one, why in self.asked.items() if one in self._answers}
                case Decided(call_id=call_id, verdict="approve") if call_id in self._answers:
                    pass  # by signal, and passed over
                case Decided(call_id=call_id):
                    self.asked = {one: why for one, why in self.asked.items() if call_id not in ("*", one)}
                case ToolStarted(call_id=call_id):
                    self.asked.pop(call_id, None)
                case ToolFinished(result=result):
                    self.asked.pop(result.call_id, None)
                case TurnStarted(turn=turn):
                    self.turn, self.asked = turn, {}
                case Switched(name="cancel_turn" | "close"):  # which denies whatever waits
                    self.asked = {}
                case Replied(message=message) if not message.cut_short:
                    self.last_text = message.text
                case Done(outcome=outcome):
                    self.done, self.asked = True, {}
                    self.turn = max(self.turn, outcome.turns) if outcome and self.turn else self.turn
                case _:
                    pass

    def differences(self, state: State) -> dict[str, Any]:
        known: dict[str, Any] = {}
        if state.answering:
            asked = {call_id: one.asked for call_id, one in state.pending.items()}
            known["events' pending"] = self.asked, {one: (it.reason, it.in_words) for one, it in asked.items()}
        if self.turn:
            known["events' turn"] = (self.turn, state.turn)
        if self.last_text is not None:
            known["events' last text"] = (self.last_text, state.last_text)
        known["events' end"] = (self.done, state.ended)
        return {name: both for name, both in known.items() if both[0] != both[1]}
