"""Time-outs and retries of the activities. How fast a lost worker is noticed, `heartbeats/profiles.py` says."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy

from everturn.heartbeats.profiles import QUICK
from everturn.plans import RetryPlan, RunActivity, RunNexus, RunTool
from everturn.temporal.task_timeout import TASK_TIMEOUT
from everturn.validation.durations import countable

HEARTBEAT_TIMEOUT = QUICK.timeout
"""A worker that is silent for so long is lost, unless it has another profile: `heartbeats/profile_interceptor.py`."""

LONGEST_TURN = timedelta(hours=6)
"""A backstop. The activity keeps its agent's own, shorter Patience.turn_timeout."""

LONGEST_QUEUE = timedelta(days=7)
"""How long a tool call may wait for a worker that hosts it, deploys and outages included."""

TAKEN_WITHIN = timedelta(seconds=10)
"""How long a user's own activity waits for a worker of another task queue before its conversation says so."""

STARTED_WITHIN = timedelta(seconds=20)
"""How long a Nexus operation waits for a handler before its conversation says so: longer than the 10 s that Temporal
gives a handler for one start. A timer's, and not Temporal's own timeout: see nexus_operations.MOST_LEFT."""

BEGIN_WEBHOOK_WITHIN = timedelta(seconds=15)
"""How long the server may take to begin a webhook's delivery, which holds up the workflow task."""

HURRIED = timedelta(seconds=1)
"""How long a tool that was quick so far may hold up its conversation's workflow task, before it goes to the queue."""

# An activity sets the delay after each of its failures. What is left is lost workers. Those are replaced soon, however
# often the activity failed before: Temporal doubles the interval for each failure of any kind. How long it is tried is
# the activity's business too, since a count would be used up by deploys.
_RETRY = RetryPolicy(initial_interval=timedelta(milliseconds=200), maximum_interval=timedelta(seconds=2))
_LOCAL_RETRY = RetryPolicy(initial_interval=timedelta(milliseconds=200), maximum_interval=timedelta(seconds=30))
_ONCE = RetryPolicy(maximum_attempts=1)


def model_options() -> dict[str, Any]:
    return {
        "start_to_close_timeout": LONGEST_TURN,
        "heartbeat_timeout": HEARTBEAT_TIMEOUT,
        "retry_policy": _RETRY,
        # What it has said by then, it hands over. A worker that is gone is silent for a heartbeat timeout, at the most.
        "cancellation_type": workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    }


def prefix_options() -> dict[str, Any]:
    """Those of a model turn, but that a cancelled turn does not wait for it: it has nothing to hand over."""
    return model_options() | {"cancellation_type": workflow.ActivityCancellationType.TRY_CANCEL}


def webhook_options() -> dict[str, Any]:
    """A try lasts half a minute at most; how long there are tries is the activity's business."""
    return {
        "start_to_close_timeout": timedelta(minutes=1),
        "heartbeat_timeout": HEARTBEAT_TIMEOUT,
        "retry_policy": _RETRY,
    }


def batch_options(taken_within: timedelta | None = None) -> dict[str, Any]:
    """Of a collector's activities: each try takes minutes at most, and there may be a day of tries. `taken_within`: the
    activity fails if no worker begins a try for so long."""
    return {
        "schedule_to_start_timeout": taken_within,
        "start_to_close_timeout": timedelta(hours=1),
        "heartbeat_timeout": HEARTBEAT_TIMEOUT,
        "retry_policy": _RETRY,
    }


def local_options(plan: RunTool) -> dict[str, Any]:
    """A local activity is run by the worker that has the conversation, within its workflow task."""
    if plan.hurried:
        return {"schedule_to_close_timeout": HURRIED, "retry_policy": _ONCE}
    return {
        "start_to_close_timeout": countable(plan.timeout) + HEARTBEAT_TIMEOUT,
        # A backstop: the activity itself ends its tries, and says why.
        "schedule_to_close_timeout": countable(plan.timeout + plan.patience) + HEARTBEAT_TIMEOUT,
        "retry_policy": _LOCAL_RETRY,
        # Longer delays would hold up the workflow task: the server's own timer takes over.
        "local_retry_threshold": timedelta(seconds=2),
    }


def check_options() -> dict[str, Any]:
    return {
        "start_to_close_timeout": timedelta(seconds=30),
        "heartbeat_timeout": HEARTBEAT_TIMEOUT,
        "retry_policy": _RETRY,
    }


def result_check_options(seconds: float) -> dict[str, Any]:
    """`seconds`: what the hooks may take together."""
    return check_options() | {"start_to_close_timeout": countable(seconds) + timedelta(seconds=30)}


def sub_agent_options() -> dict[str, Any]:
    return {
        "task_timeout": TASK_TIMEOUT,
        "parent_close_policy": workflow.ParentClosePolicy.REQUEST_CANCEL,
        "cancellation_type": workflow.ChildWorkflowCancellationType.TRY_CANCEL,
    }


def tool_activity_options(plan: RunTool) -> dict[str, Any]:
    # The activity ends a run at the tool's own time-out and reports it; the server's is for one that can't report.
    timeout = countable(plan.timeout) + HEARTBEAT_TIMEOUT
    return {
        "start_to_close_timeout": timeout,
        "schedule_to_close_timeout": LONGEST_QUEUE + max(timeout, countable(plan.patience)),
        "heartbeat_timeout": HEARTBEAT_TIMEOUT,
        "retry_policy": _RETRY if plan.retried else _ONCE,
    }


def user_activity_options(plan: RunActivity, *, awaited: bool) -> dict[str, Any]:
    """Of an activity that is no tool of ours. `awaited`: the conversation says already that it waits for a worker."""
    in_queue = LONGEST_QUEUE if awaited or plan.task_queue is None else TAKEN_WITHIN
    timeout = countable(plan.timeout)
    return {
        "task_queue": plan.task_queue,
        "start_to_close_timeout": timeout,
        "schedule_to_start_timeout": in_queue,
        # With a retry policy, all tries together are bounded here; without one, by the conversation.
        "schedule_to_close_timeout": plan.retry and in_queue + max(timeout, countable(plan.patience)),
        "heartbeat_timeout": plan.heartbeat_timeout and countable(plan.heartbeat_timeout),
        "retry_policy": _retry_policy(plan.retry) if plan.retry else _ONCE,
    }


def operation_options(plan: RunNexus) -> dict[str, Any]:
    timeout = countable(plan.timeout)
    return {
        "start_to_close_timeout": timeout,
        "schedule_to_close_timeout": LONGEST_QUEUE + timeout,
        # With TRY_CANCEL, the SDK fails the workflow task, for ever, if the handler answers the start after that.
        "cancellation_type": workflow.NexusOperationCancellationType.WAIT_COMPLETED,
    }


def _retry_policy(plan: RetryPlan) -> RetryPolicy:
    return RetryPolicy(
        initial_interval=countable(plan.initial_interval),
        backoff_coefficient=plan.backoff_coefficient,
        maximum_interval=None if plan.maximum_interval is None else countable(plan.maximum_interval),
        maximum_attempts=plan.maximum_attempts,
        non_retryable_error_types=plan.non_retryable_error_types or None,
    )


def turn_group(turn: int) -> workflow.EventGroup:
    """What a turn's events have in common: the server keeps it with each, for Web UIs that show it (decision 0008)."""
    return workflow.create_event_group(f"turn {turn}")
