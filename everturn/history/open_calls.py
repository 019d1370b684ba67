"""The calls of a reply that is not over: which have finished, which run, which wait. The transcript gets their results
together, once the last one is there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from everturn.calls.decision_records import denial_text
from everturn.history.state_by_history import StateByHistory
from everturn.plans import RefuseCall, UseResult
from everturn.records import Decision, Text, ToolCall, ToolResult

CallState = Literal["finished", "settled", "waits", "runs", "not_begun", "open"]

IN_WORDS: dict[CallState, str] = {
    "finished": "has finished",
    "settled": "does not run: somebody decided or it was refused, and its result comes with the reply's last one",
    "waits": "waits for a decision",
    "runs": "is running",
    "not_begun": "has not begun",
    "open": "has no result yet",
}


@dataclass(frozen=True)
class OpenCall:
    """A call of the last reply. The transcript has no result of it yet."""

    call: ToolCall
    state: CallState
    """`settled`: it does not run, because it was denied, answered or refused. `open`: the history says nothing about it
    before it ends."""
    result: ToolResult | None = None
    """Only of a call that has `finished`."""

    def as_json(self) -> dict[str, Any]:
        result = self.result.model_dump(mode="json") if self.result else None
        return {"call_id": self.call.call_id, "tool": self.call.name, "state": self.state, "result": result}


def open_calls(by_history: StateByHistory) -> tuple[OpenCall, ...]:
    """Empty if the transcript has all results."""
    return tuple(_open_call(call, by_history) for call, _ in by_history.calls.planned.values())


def settled_result(call: ToolCall, by_history: StateByHistory) -> ToolResult | None:
    """The result of a call that is `settled`, as far as the history has it by now; None if it is not, or if it is a
    call of another conversation's."""
    if call.call_id not in by_history.calls.planned or _open_call(call, by_history).state != "settled":
        return None
    denial = by_history.decisions.refusals.get(call.call_id)
    result = ToolResult(call_id=call.call_id, name=call.name, content=(), decision=denial)
    match by_history.calls.plan_of(call.call_id), denial:
        case _, Decision(verdict="answer") if answer := by_history.decisions.answers.get(call.call_id):
            return result.model_copy(update={"content": answer.as_parts(), "is_error": answer.is_error})
        case UseResult(result=given), None:
            return given
        case RefuseCall(text=text), _ if text:
            pass
        case _, Decision(verdict="deny"):
            text = denial_text(denial)
        case _:
            text = f"This call {IN_WORDS['settled']}."
    return result.model_copy(update={"content": (Text(text=text),), "is_error": True})


def _open_call(call: ToolCall, by_history: StateByHistory) -> OpenCall:
    calls = by_history.calls
    call_id = call.call_id
    if result := calls.result_of(call_id):
        # Without an event of its own, an empty result stands for one that is written when the model is told.
        is_known = result.content or call_id in calls.recorded or call_id in calls.from_outputs
        if not is_known:
            return OpenCall(call, "settled")
        return OpenCall(call, "finished", result)
    if call_id in by_history.state.pending or call_id in by_history.awaited:
        return OpenCall(call, "waits")
    if call_id in calls.running:
        return OpenCall(call, "runs")
    return OpenCall(call, "not_begun" if calls.begins_late(call_id) else "open")
