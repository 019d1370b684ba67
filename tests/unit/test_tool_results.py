"""Results of calls that did not simply run, in the words that a model reads."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from temporalio import exceptions
from temporalio.exceptions import ApplicationError, FailureError, TimeoutType

from everturn import names
from everturn.records import Decision, Text, ToolCall, ToolResult
from everturn.workflows import tool_results
from everturn.workflows.activity_results import UnreadableResult
from everturn.workflows.applied_decisions import AppliedDecision
from tests.support.activity_errors import activity_error, child_error

PAY = ToolCall(call_id="a", name="pay")
EDITED = Decision(verdict="approve", by="ann", arguments={"cents": 4})


def lost() -> Exception:
    return exceptions.TimeoutError("lost", type=TimeoutType.HEARTBEAT, last_heartbeat_details=[])


@pytest.mark.parametrize("is_error", [False, True])
def test_a_model_is_told_of_other_arguments_only_beside_a_result_of_theirs(*, is_error: bool) -> None:
    given = ToolResult(call_id="a", name="pay", content=(Text(text="paid"),), is_error=is_error)
    approved = tool_results.with_approval(given, EDITED)
    assert approved.decision == EDITED
    notice = '[Approved by ann with other arguments: {"cents":4}]\n'
    assert [part.text for part in approved.content] == (["paid"] if is_error else [notice, "paid"])  # type: ignore[union-attr]


@pytest.mark.parametrize("approval", [None, EDITED])
@pytest.mark.parametrize("is_error", [False, True])
def test_an_answer_is_the_result_and_keeps_the_approval_that_went_before(
    approval: Decision | None, *, is_error: bool
) -> None:
    answer = Decision(verdict="answer", by="bob")
    applied = AppliedDecision(answer, (Text(text="paid"),), is_error)
    result = tool_results.result_of_decision(PAY, applied, approval=approval)
    assert (result.call_id, result.name, result.is_error) == ("a", "pay", is_error)
    assert result.decision == (approval or answer)
    assert len(result.content) == (2 if approval and not is_error else 1)


@pytest.mark.parametrize("begun", [False, True])
def test_a_denial_says_whether_the_call_may_have_run(*, begun: bool) -> None:
    applied = AppliedDecision(Decision(verdict="deny", by="ann"))
    result = tool_results.result_of_decision(PAY, applied, begun=begun)
    ran = ". Its client had it already, and may have run it." if begun else " and did not run."
    assert (result.text, result.is_error) == (f"This call was denied by ann{ran}", True)
    assert tool_results.result_of_decision(PAY, applied).text.endswith(" and did not run.")
    assert result.decision == applied.decision


@pytest.mark.parametrize("verdict", ["answer", "deny"])
def test_what_becomes_of_a_call_whose_outcome_nobody_knows(verdict: Any) -> None:
    applied = AppliedDecision(Decision(verdict=verdict, note="seen"), (Text(text="it was paid"),))
    result = tool_results.unknown_outcome_result(PAY, applied)
    unknown = (
        "The outcome of this call is unknown: it was started, but no result came back. It may or may not have taken "
        "effect, and it will not be run again. Reason: seen"
    )
    assert result.text == ("it was paid" if verdict == "answer" else unknown)
    assert result.decision == applied.decision


@pytest.mark.parametrize(
    ("cause", "delay"),
    [
        (lost(), timedelta()),
        (ApplicationError("later", next_retry_delay=timedelta(seconds=3)), timedelta(seconds=3)),
        (ApplicationError("later"), timedelta()),
        (ApplicationError("never", non_retryable=True), None),
        (exceptions.CancelledError("by hand"), None),
    ],
)
def test_a_hurried_try_that_failed_goes_to_the_queue_if_it_may_be_tried_again(
    cause: BaseException, delay: timedelta | None
) -> None:
    assert tool_results.delay_after_hurried_try(activity_error(cause)) == delay


@pytest.mark.parametrize("kind", [names.OUTCOME_UNKNOWN, names.TIMED_OUT, names.CUT_SHORT, "Other"])
@pytest.mark.parametrize("begun", [False, True])
def test_the_model_is_told_why_a_call_has_no_result(kind: str, *, begun: bool) -> None:
    result = tool_results.could_not_run_result(
        PAY, activity_error(ApplicationError("it broke.", type=kind)), begun=begun
    )
    doubt = " It may or may not have taken effect." if begun else ""
    known = f"The tool could not be run: it broke.{doubt}"
    assert result.text == (known if kind == "Other" else "The outcome of this call is unknown: it broke.")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            activity_error(lost()),
            "The tool could not be run: its worker was lost, took too long, or could not reach Temporal (heartbeat "
            "timeout). It may or may not have taken effect.",
        ),
        (UnreadableResult("it is empty"), "The tool could not be run: it is empty"),
    ],
)
def test_a_lost_call_may_have_taken_effect(error: Any, text: str) -> None:
    assert tool_results.could_not_run_result(PAY, error, begun=False).text == text


@pytest.mark.parametrize(
    ("cause", "reason"),
    [
        (exceptions.TerminatedError("T"), "its conversation was terminated"),
        (exceptions.CancelledError("C"), "its conversation was cancelled"),
        (lost(), "its conversation reached its workflow timeout"),
        (ApplicationError("it is broken", type="Broken"), "it is broken"),
        (ValueError("odd"), "odd"),
    ],
)
def test_the_model_is_told_why_a_sub_agent_has_no_answer(cause: BaseException, reason: str) -> None:
    error = child_error(cause)
    assert tool_results.no_answer_result(PAY, error).text == f"pay could not answer: {reason}."
    running = exceptions.WorkflowAlreadyStartedError("child", "Conversation")
    assert tool_results.no_answer_result(PAY, running).text == (
        "pay could not answer: a conversation 'child' is already running."
    )


def test_what_an_error_says_beside_its_message() -> None:
    details = {"left": {"step": 1}, "proposed": {"cents": 4}, "cure": "deploy it", "lost": True}
    error = activity_error(ApplicationError("nobody has it", details, type=names.NOT_HOSTED))
    assert (tool_results.left_by(error), tool_results.proposed_by(error)) == ({"step": 1}, {"cents": 4})
    assert (tool_results.detail_of(error, "cure"), tool_results.detail_of(error, "fallback")) == ("deploy it", None)
    assert (tool_results.not_hosted(error), tool_results.may_have_run(error)) == (True, True)
    assert (tool_results.kind_of(error), tool_results.cause_of(error)) == (names.NOT_HOSTED, "nobody has it")
    unreadable = UnreadableResult("it is empty")
    assert (tool_results.left_by(unreadable), tool_results.proposed_by(unreadable)) == (None, None)
    assert (tool_results.kind_of(unreadable), tool_results.cause_of(unreadable)) == (
        names.UNREADABLE_RESULT,
        "it is empty",
    )


def test_a_local_activitys_failure_is_told_as_any_others() -> None:
    error = tool_results.as_activity_error(FailureError("it broke"), "pay")
    assert (error.message, error.activity_type) == ("it broke", "pay")
