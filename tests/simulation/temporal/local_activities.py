"""Local activities as the SDK's core runs them: tried again by itself, with its own clocks, within a workflow task.

One that takes long holds its workflow task: core completes the task in time, has another one at once, and goes on. One
whose next try is far off ends with a backoff: the workflow waits by a timer, and asks again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from google.protobuf.duration_pb2 import Duration
from temporalio.api.enums.v1 import TimeoutType
from temporalio.api.failure.v1 import Failure, TimeoutFailureInfo
from temporalio.bridge.proto.activity_result import DoBackoff
from temporalio.bridge.proto.activity_task import ActivityCancellationDetails, ActivityCancelReason, Cancel, Start
from temporalio.worker._activity import _RunningActivity

from tests.simulation.temporal.dispatch import TASK_SECONDS
from tests.simulation.temporal.history import now

if TYPE_CHECKING:
    from tests.simulation.machines.workers import SimulatedWorker
    from tests.simulation.temporal.runs import Run
    from tests.simulation.temporal.sdk_core import CachedRun

HOLDS_SECONDS = 0.8 * TASK_SECONDS
"""Then a workflow task whose local activities still run is completed, and another one is asked for."""

MOST_UNCLOCKED = 5
"""Tries in worlds whose local activities have no clocks, as they had none at first: their seeds keep what they find."""

CLOSE, BEGUN = TimeoutType.TIMEOUT_TYPE_SCHEDULE_TO_CLOSE, TimeoutType.TIMEOUT_TYPE_START_TO_CLOSE


async def run_local(worker: SimulatedWorker, asked: Any, cached: CachedRun, run: Run) -> tuple[str, Any]:
    """How it ended, and with what."""
    loop, attempt = asyncio.get_running_loop(), max(1, asked.attempt)
    first = asked.original_schedule_time if asked.HasField("original_schedule_time") else now()
    spent = (now().ToMicroseconds() - first.ToMicroseconds()) / 1e6
    whole = _seconds(asked.schedule_to_close_timeout) if worker.clocks_locals else 0.0
    until = loop.time() + whole - spent if whole else None
    while True:
        worker.server.count("local activities")
        token = f"local/{run.id}/{asked.seq}/{attempt}/{cached.done}".encode()
        left = until - loop.time() if until is not None else None
        result = await _try(worker, _start(asked, run, attempt), token, left)
        if isinstance(result, Failure):
            failure, again = result, result.timeout_failure_info.timeout_type == BEGUN
        elif result.HasField("completed"):
            return "completed", result.completed.result
        elif result.HasField("cancelled") and worker.draining:
            await loop.create_future()  # nothing of it is recorded: another worker begins it anew
            raise AssertionError
        else:
            failure = result.failed.failure
            again = result.HasField("failed") and not failure.application_failure_info.non_retryable
        most = asked.retry_policy.maximum_attempts
        if not again or (most and attempt >= most) or (attempt > MOST_UNCLOCKED and not worker.clocks_locals):
            return "failed", failure
        delay = _delay(asked, failure, attempt) if worker.clocks_locals else 0.2
        if until is not None and loop.time() + delay >= until:
            return "failed", failure
        attempt += 1
        worker.server.count("local retries")
        if delay > _seconds(asked.local_retry_threshold):
            worker.server.count("local backoffs")
            waits = Duration()
            waits.FromMicroseconds(round(delay * 1e6))
            return "backoff", DoBackoff(attempt=attempt, backoff_duration=waits, original_schedule_time=first)
        await asyncio.sleep(delay)


def _start(asked: Any, run: Run, attempt: int) -> Start:
    start = Start(
        workflow_namespace="default",
        workflow_type="Conversation",
        activity_id=asked.activity_id,
        activity_type=asked.activity_type,
        input=asked.arguments,
        attempt=attempt,
        schedule_to_close_timeout=asked.schedule_to_close_timeout,
        start_to_close_timeout=asked.start_to_close_timeout,
        retry_policy=asked.retry_policy,
        is_local=True,
    )
    start.workflow_execution.workflow_id, start.workflow_execution.run_id = run.workflow_id, run.id
    return start


async def _try(worker: SimulatedWorker, start: Start, token: bytes, left: float | None) -> Any:
    """Its result; or, as a Failure, that it was too late."""
    if not worker.clocks_locals:
        await worker.run_here(token, start)
        return worker.locals_ended.pop(token)
    running = worker.began(token, start)
    each = _seconds(start.start_to_close_timeout)
    limits = [(seconds, kind) for seconds, kind in ((left, CLOSE), (each or None, BEGUN)) if seconds is not None]
    seconds, kind = min(limits) if limits else (None, BEGUN)
    assert running.task
    try:
        await asyncio.wait([running.task], timeout=seconds)
    except asyncio.CancelledError:
        _cancel(worker, token, running, Cancel(reason=ActivityCancelReason.CANCELLED, details=_CANCELLED))
        raise
    if running.task.done():
        return worker.locals_ended.pop(token)
    worker.server.count("local time-outs")
    _cancel(worker, token, running, Cancel(reason=ActivityCancelReason.TIMED_OUT, details=_TIMED_OUT))
    return Failure(message="activity timed out", timeout_failure_info=TimeoutFailureInfo(timeout_type=kind))


_CANCELLED, _TIMED_OUT = ActivityCancellationDetails(is_cancelled=True), ActivityCancellationDetails(is_timed_out=True)


def _cancel(worker: SimulatedWorker, token: bytes, running: _RunningActivity, why: Cancel) -> None:
    if not running.done:
        worker.cancel_activity(token, why)


def _delay(asked: Any, failure: Failure, attempt: int) -> float:
    info = failure.application_failure_info
    if failure.HasField("application_failure_info") and info.HasField("next_retry_delay"):
        return _seconds(info.next_retry_delay)
    policy = asked.retry_policy
    doubled = (_seconds(policy.initial_interval) or 1.0) * 2.0 ** min(attempt - 1, 30)
    return min(doubled, _seconds(policy.maximum_interval) or 100.0)


def _seconds(duration: Any) -> float:
    return float(duration.ToTimedelta().total_seconds())
