"""How the failure of an activity, or of a child workflow, comes to its workflow."""

from __future__ import annotations

from temporalio.exceptions import ActivityError, ChildWorkflowError, RetryState, TimeoutType
from temporalio.exceptions import TimeoutError as TimedOut


def activity_error(cause: BaseException, *, activity_type: str = "Pay", activity_id: str = "1") -> ActivityError:
    error = ActivityError(
        "it failed",
        scheduled_event_id=1,
        started_event_id=2,
        identity="worker",
        activity_type=activity_type,
        activity_id=activity_id,
        retry_state=RetryState.TIMEOUT,
    )
    error.__cause__ = cause
    return error


def child_error(cause: BaseException) -> ChildWorkflowError:
    error = ChildWorkflowError(
        "it failed",
        namespace="default",
        workflow_id="child",
        run_id="run",
        workflow_type="Conversation",
        initiated_event_id=1,
        started_event_id=2,
        retry_state=None,
    )
    error.__cause__ = cause
    return error


def timed_out(kind: TimeoutType = TimeoutType.HEARTBEAT) -> TimedOut:
    return TimedOut("activity timed out", type=kind, last_heartbeat_details=[])
