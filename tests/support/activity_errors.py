"""How an activity's failure comes to its workflow."""

from __future__ import annotations

from temporalio.exceptions import ActivityError, RetryState


def activity_error(cause: BaseException) -> ActivityError:
    error = ActivityError(
        "it failed",
        scheduled_event_id=1,
        started_event_id=2,
        identity="worker",
        activity_type="Pay",
        activity_id="1",
        retry_state=RetryState.TIMEOUT,
    )
    error.__cause__ = cause
    return error
