"""Activities, as the server sees them: handed to a worker, tried again, timed out, cancelled."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from temporalio.api.common.v1 import Payloads
from temporalio.api.enums.v1 import RetryState, TimeoutType
from temporalio.api.failure.v1 import Failure, TimeoutFailureInfo
from temporalio.api.history.v1 import HistoryEvent

from tests.simulation.agents.words import beaten, words_in
from tests.simulation.temporal import limits
from tests.simulation.temporal.history import attributes

if TYPE_CHECKING:
    from random import Random

    from tests.simulation.machines.workers import SimulatedWorker
    from tests.simulation.temporal.runs import Run
    from tests.simulation.temporal.server import Server

NEXT = {
    TimeoutType.TIMEOUT_TYPE_START_TO_CLOSE: "activity StartToClose timeout",
    TimeoutType.TIMEOUT_TYPE_HEARTBEAT: "activity Heartbeat timeout",
    TimeoutType.TIMEOUT_TYPE_SCHEDULE_TO_CLOSE: "activity ScheduleToClose timeout",
}

CUT = ("activity_task_canceled", "activity_task_timed_out")
"""How an activity that was cancelled ends without a result."""


@dataclass(eq=False)
class Activity:
    """One that was scheduled, until it ends."""

    server: Server
    run: Run
    scheduled: HistoryEvent
    attempt: int = 1
    worker: SimulatedWorker | None = None
    """Who runs this try; None between tries."""
    started_at: float = 0.0
    details: Payloads = field(default_factory=Payloads)
    """Of the last heartbeat, of this try or of one before."""
    words: list[str] = field(default_factory=list)
    """What its heartbeats have said of its text: those of this try, or what the try before has left."""
    beaten_at: float = 0.0
    last_failure: Failure | None = None
    cancel_requested: bool = False
    over: bool = False
    _clocks: dict[int, asyncio.TimerHandle] = field(default_factory=dict)

    @property
    def chance(self) -> Random:
        """By which it is done: the same one for all that happens in its tries."""
        return self.server.chances.of(self.run.name, "activity", self.asked.activity_id)

    @property
    def asked(self) -> Any:
        return attributes(self.scheduled)

    @property
    def name(self) -> str:
        return str(self.asked.activity_type.name)

    @property
    def token(self) -> bytes:
        return f"{self.run.id}/{self.scheduled.event_id}/{self.attempt}".encode()

    def begin(self, *, eager: SimulatedWorker | None) -> None:
        if self.asked.HasField("schedule_to_close_timeout") and (
            seconds := _seconds(self.asked.schedule_to_close_timeout)
        ):
            self._clock(TimeoutType.TIMEOUT_TYPE_SCHEDULE_TO_CLOSE, seconds)
        self._queue(eager)

    def _queue(self, eager: SimulatedWorker | None = None) -> None:
        attempt = self.attempt
        self.server.for_any(lambda worker: self._start(worker, attempt), self.chance, first=eager)

    def _start(self, worker: SimulatedWorker, attempt: int) -> None:
        if self.over or self.worker or attempt != self.attempt:
            return
        if not worker.polls:
            self._queue()
            return
        self.worker, self.started_at = worker, self.server.loop.time()
        self.beaten_at, self.words = self.started_at, beaten(self.details)
        self._clock(TimeoutType.TIMEOUT_TYPE_START_TO_CLOSE, _seconds(self.asked.start_to_close_timeout))
        self._await_heartbeat()
        self.server.count("activity tries")
        worker.take_activity(self)

    def _clock(self, kind: int, seconds: float) -> None:
        if old := self._clocks.pop(kind, None):
            old.cancel()
        if seconds:
            self._clocks[kind] = self.server.later(self._timed_out, kind, seconds=seconds)

    def _await_heartbeat(self) -> None:
        self._clock(TimeoutType.TIMEOUT_TYPE_HEARTBEAT, _seconds(self.asked.heartbeat_timeout))

    def forget(self) -> None:
        self.over = True
        self._stop_clocks()

    def _stop_clocks(self, *, between: bool = False) -> None:
        for kind, clock in list(self._clocks.items()):
            if not (between and kind == TimeoutType.TIMEOUT_TYPE_SCHEDULE_TO_CLOSE):
                clock.cancel()
                del self._clocks[kind]

    # ------------------------------------------------------------ what the worker says

    def heartbeat(self, details: Payloads) -> None:
        limits.check_sent(self.server, f"a heartbeat of {self.name}", details)
        self.details, self.beaten_at = details, self.server.loop.time()
        self.words = beaten(details) or self.words
        self._await_heartbeat()

    def complete(self, result: Payloads) -> None:
        limits.check_sent(self.server, f"the result of {self.name}", result)
        self._close("activity_task_completed", result=result)

    def cancelled(self, details: Payloads) -> None:
        self._close("activity_task_canceled", details=details)

    def failed(self, failure: Failure) -> None:
        limits.check_sent(self.server, f"the failure of {self.name}", failure)
        info, retry = failure.application_failure_info, self.asked.retry_policy
        if info.non_retryable or info.type in retry.non_retryable_error_types:
            self._close(
                "activity_task_failed", failure=failure, retry_state=RetryState.RETRY_STATE_NON_RETRYABLE_FAILURE
            )
            return
        delay = info.next_retry_delay.ToTimedelta().total_seconds() if info.HasField("next_retry_delay") else None
        if self._ended_tries():
            state = RetryState.RETRY_STATE_MAXIMUM_ATTEMPTS_REACHED
            self._close("activity_task_failed", failure=failure, retry_state=state)
        elif self.cancel_requested:
            state = RetryState.RETRY_STATE_CANCEL_REQUESTED
            self._close("activity_task_failed", failure=failure, retry_state=state)
        else:
            self._try_again(failure, delay)

    def _ended_tries(self) -> bool:
        most = self.asked.retry_policy.maximum_attempts
        return bool(most and self.attempt >= most)

    def _try_again(self, failure: Failure, delay: float | None) -> None:
        retry = self.asked.retry_policy
        if delay is None:
            doubled = _seconds(retry.initial_interval) * 2.0 ** min(self.attempt - 1, 30)
            delay = min(doubled, _seconds(retry.maximum_interval) or 100.0)
        self.last_failure, self.worker = failure, None
        self._stop_clocks(between=True)
        self.attempt += 1
        self.server.count("activity retries")
        self.server.later(self._retried, self.attempt, seconds=delay)

    def _retried(self, attempt: int) -> None:
        if not self.over and attempt == self.attempt:
            self._queue()

    def _timed_out(self, kind: int) -> None:
        if self.over:
            return
        self.server.count("activity time-outs")
        late = Failure(message=NEXT[kind], timeout_failure_info=TimeoutFailureInfo(timeout_type=kind))  # type: ignore[arg-type]
        late.timeout_failure_info.last_heartbeat_details.CopyFrom(self.details)
        if kind == TimeoutType.TIMEOUT_TYPE_SCHEDULE_TO_CLOSE:
            if self.last_failure:
                late.cause.CopyFrom(self.last_failure)
            self._close("activity_task_timed_out", failure=late, retry_state=RetryState.RETRY_STATE_TIMEOUT)
        elif self._ended_tries():
            state = RetryState.RETRY_STATE_MAXIMUM_ATTEMPTS_REACHED
            self._close("activity_task_timed_out", failure=late, retry_state=state)
        elif self.cancel_requested:
            self._close("activity_task_timed_out", failure=late, retry_state=RetryState.RETRY_STATE_CANCEL_REQUESTED)
        else:
            self._try_again(late, None)

    def request_cancel(self) -> None:
        """The conversation does not want it any more. Its worker hears of that with its next heartbeat."""
        self.cancel_requested = True
        if self.worker is None:
            self._close("activity_task_canceled")

    def _close(self, name: str, **values: Any) -> None:
        """Writes the end, and before that its start, which no try has written."""
        ran = self.worker is not None or self.attempt > 1
        # A whole reply that comes all the same counts: what an earlier try had said is withdrawn.
        brings = values.get("result", Payloads()).SerializeToString()
        cut = name in CUT or (name == "activity_task_completed" and b'"cut_short":true' in brings)
        if self.cancel_requested and self.worker and cut:
            late = name == "activity_task_timed_out"  # then the server has its last heartbeat, and nothing else
            words, own = beaten(self.details) if late else self.words, words_in(brings.decode(errors="ignore"))
            another = bool(own) and own[0] not in words  # this try has told of none of it, and an earlier one has
            self.server.was_seen(self.run, self.name, own if another else words)
        self.forget()
        self.run.activities.pop(self.scheduled.event_id, None)
        scheduled, identity = self.scheduled.event_id, self.worker.name if self.worker else ""

        def write() -> HistoryEvent:
            started = 0
            if ran:
                started = self.run.write(
                    "activity_task_started",
                    scheduled_event_id=scheduled,
                    identity=identity,
                    request_id=f"{scheduled}",
                    attempt=self.attempt,
                    last_failure=self.last_failure,
                ).event_id
            extra = {} if name == "activity_task_timed_out" else {"identity": identity}
            return self.run.write(name, scheduled_event_id=scheduled, started_event_id=started, **extra, **values)

        self.server.arrive_with(self.run, name, write)


def _seconds(duration: Any) -> float:
    return float(duration.ToTimedelta().total_seconds())
