"""Results of calls that did not simply run: pure functions from decisions and failures to results."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Literal

from pydantic import JsonValue
from temporalio import exceptions
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    ChildWorkflowError,
    FailureError,
    WorkflowAlreadyStartedError,
)

from everturn import names
from everturn.calls import causes
from everturn.calls.decision_records import denial_text, reason_text
from everturn.records import Decision, Text, ToolCall, ToolResult
from everturn.truncation import edit_notice
from everturn.workflows.activity_results import UnreadableResult
from everturn.workflows.applied_decisions import AppliedDecision

_ENDS: dict[type[BaseException | None], str] = {
    exceptions.TerminatedError: "its conversation was terminated",
    exceptions.CancelledError: "its conversation was cancelled",
    exceptions.TimeoutError: "its conversation reached its workflow timeout",
}


def error_result(call: ToolCall, text: str, *, decision: Decision | None = None) -> ToolResult:
    return ToolResult(
        call_id=call.call_id, name=call.name, content=(Text(text=text),), is_error=True, decision=decision
    )


def result_of_decision(
    call: ToolCall, applied: AppliedDecision, *, approval: Decision | None = None, begun: bool = False
) -> ToolResult:
    """The result of a denial, or of an answer instead of the tool's. `approval`: the one that the call had before a
    client ran it; `begun`: a client may have begun it."""
    decision = applied.decision
    if decision.verdict == "answer":
        result = ToolResult(call_id=call.call_id, name=call.name, content=applied.content, is_error=applied.is_error)
        if approval:
            return with_approval(result, approval)
        return result.model_copy(update={"decision": decision})
    return error_result(call, denial_text(decision, begun=begun), decision=decision)


def with_approval(result: ToolResult, approval: Decision | None) -> ToolResult:
    """The result of a call that somebody approved first. The model is told if it ran with other arguments."""
    content = result.content
    if not result.is_error:
        content = (*edit_notice(approval), *content)
    return result.model_copy(update={"content": content, "decision": approval})


def unknown_outcome_result(call: ToolCall, applied: AppliedDecision) -> ToolResult:
    """The result that follows from a person's decision on a call whose run ended without a report."""
    if applied.decision.verdict == "answer":
        return result_of_decision(call, applied)
    text = (
        "The outcome of this call is unknown: it was started, but no result came back. It may or may not have "
        f"taken effect, and it will not be run again.{reason_text(applied.decision)}"
    )
    return error_result(call, text, decision=applied.decision)


def not_hosted(error: ActivityError) -> bool:
    """Whether workers handed it back because they don't host its agent or tool."""
    return causes.cause_of(error).not_hosted


def may_have_run(error: ActivityError) -> bool:
    """Whether a try was lost with its worker before one handed it back."""
    return causes.cause_of(error).lost


def as_activity_error(error: FailureError, name: str) -> ActivityError:
    """The failure of a local activity, which Temporal gives bare, as an ActivityError like that of any other. To be
    raised from it."""
    nothing: dict[str, Any] = {"scheduled_event_id": 0, "started_event_id": 0, "identity": "", "activity_id": ""}
    return ActivityError(error.message, activity_type=name, retry_state=None, **nothing)


def delay_after_hurried_try(error: ActivityError) -> timedelta | None:
    """How long after a hurried try that failed the tool is to run by way of the queue; None if it is not."""
    match error.__cause__:
        case exceptions.TimeoutError():
            return timedelta()
        case ApplicationError(non_retryable=False, next_retry_delay=delay):
            return delay or timedelta()
        case _:
            return None


def not_checked(error: UnreadableResult, name: str) -> ActivityError:
    """The error for a call that could not be checked before its activity runs. To be raised from an ApplicationError
    that says so."""
    return as_activity_error(FailureError(error.problem), name)


def kind_of(error: ActivityError | UnreadableResult) -> str:
    """The error's type, such as InvalidEdit; empty for a timeout."""
    if isinstance(error, UnreadableResult):
        return names.UNREADABLE_RESULT
    return causes.cause_of(error).kind


def could_not_run_result(call: ToolCall, error: ActivityError | UnreadableResult, *, begun: bool) -> ToolResult:
    """`begun`: an earlier try of it was lost while it ran."""
    if kind_of(error) in (names.OUTCOME_UNKNOWN, names.TIMED_OUT, names.CUT_SHORT):
        return error_result(call, f"The outcome of this call is unknown: {cause_of(error)}")
    text = f"The tool could not be run: {cause_of(error)}"
    if begun or isinstance(error.__cause__, exceptions.TimeoutError):
        text = f"{text.removesuffix('.')}. It may or may not have taken effect."
    return error_result(call, text)


def no_answer_result(call: ToolCall, error: ChildWorkflowError | WorkflowAlreadyStartedError) -> ToolResult:
    """The result of a call if the sub-agent's conversation has no outcome."""
    if isinstance(error, WorkflowAlreadyStartedError):
        reason = f"a conversation {error.workflow_id!r} is already running"
    else:
        reason = _ENDS.get(type(error.cause)) or str(getattr(error.cause, "message", error.cause))
    return error_result(call, f"{call.name} could not answer: {reason}.")


def cause_of(error: ActivityError | UnreadableResult) -> str:
    """One sentence on why an activity failed."""
    return error.problem if isinstance(error, UnreadableResult) else causes.cause_of(error).cause


def left_by(error: ActivityError | UnreadableResult) -> dict[str, JsonValue] | None:
    """The details that a tool left when it asked a person."""
    return None if isinstance(error, UnreadableResult) else causes.cause_of(error).left


def proposed_by(error: ActivityError | UnreadableResult) -> dict[str, JsonValue] | None:
    """What hooks made of the arguments that a person put in."""
    return None if isinstance(error, UnreadableResult) else causes.cause_of(error).proposed


def detail_of(error: ActivityError, name: Literal["cure", "fallback", "too_long"]) -> str | None:
    """What the activity that failed said beside its message: a `cure`, or the `fallback` to go on with."""
    return getattr(causes.cause_of(error), name) or None
