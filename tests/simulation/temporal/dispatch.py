"""Workflow tasks: when one is due, which worker is given it, and what becomes of those that nobody ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from google.protobuf.duration_pb2 import Duration
from temporalio.api.enums.v1 import TimeoutType, WorkflowTaskFailedCause
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.update.v1 import Outcome
from temporalio.service import RPCError, RPCStatusCode

from tests.simulation.chance import Chances
from tests.simulation.temporal import limits
from tests.simulation.temporal.runs import Run, Task

if TYPE_CHECKING:
    from random import Random

    from tests.simulation.machines.workers import SimulatedWorker
    from tests.simulation.temporal.index import Index

TASK_SECONDS = 5.0
STICKY_SECONDS = 2.0
QUEUE = "simulated"
SUGGESTED_EVENTS = 4_096


class Dispatch:
    """`chances` decide how long everything takes. `violations`: what was found to be wrong."""

    def __init__(self, loop: asyncio.AbstractEventLoop, chances: Chances) -> None:
        self.loop = loop
        self.chances = chances
        self.quick = False
        """Things take no time to come."""
        self.ledger: Any = None
        self.indexed = chances.of("index").random() < 0.8
        """The namespace has everturn's search attributes."""
        self.workers: list[SimulatedWorker] = []
        self.backlog: list[tuple[Callable[[SimulatedWorker], None], Random]] = []
        """What waits for any worker, and by whose chance it comes to one."""
        self.violations: list[str] = []
        self.notes: list[tuple[float, str]] = []
        """For who reads a world's story: what no history says, and when."""
        self.broken: asyncio.Future[None] = loop.create_future()
        self.counts: dict[str, int] = {}
        self.index: Index | None = None
        """By which conversations are listed; most worlds have none."""
        self.may_leave = False
        self.away: asyncio.Future[None] = loop.create_future()
        """Done while nobody reaches the server, in a world in which it `may_leave`."""
        self.drop_mcp: Callable[[SimulatedWorker], None] = lambda _: None
        """Called when a worker is gone, which ends its connections to MCP servers."""
        self.on_task: Callable[[Run], None] = lambda _: None
        """Called after every workflow task."""

    # ------------------------------------------------------------ time and chance

    def latency(self, chance: Random) -> float:
        """Seconds that something takes on its way: mostly little, now and then much."""
        kind = chance.random()
        if self.quick:
            return 0.0 if kind < 0.9 else chance.expovariate(200.0)
        if kind < 0.3:
            return 0.0
        return chance.expovariate(200.0) if kind < 0.97 else chance.uniform(0.1, 3.0)

    def soon(self, chance: Random, act: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
        return self.loop.call_later(self.latency(chance), act, *args)

    def later(self, act: Callable[..., object], *args: Any, seconds: float) -> asyncio.TimerHandle:
        return self.loop.call_later(seconds, act, *args)

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def note(self, what: str) -> None:
        self.notes.append((self.loop.time(), what))

    def wrong(self, what: str) -> None:
        """Something does not hold: what comes after that is of no interest."""
        self.violations.append(what)
        self.note(f"BROKEN: {what}")
        if not self.broken.done():
            self.broken.set_result(None)

    def leave(self, seconds: float) -> None:
        """Nobody reaches it for a while, workers neither."""
        self.count("outages")
        self.away.set_result(None)
        for worker in list(self.workers):
            worker.cut_off(seconds)

    def come_back(self) -> None:
        if self.away.done():
            self.away = self.loop.create_future()

    # ------------------------------------------------------------ workflow tasks

    def need_task(self, run: Run, *, speculative: bool = False) -> None:
        if run.closed or run.task:
            return
        run.task = Task(attempt=run.failures + 1, speculative=speculative)
        if not speculative:
            self._write_scheduled(run, run.task)
        self._dispatch(run, run.task)

    def _write_scheduled(self, run: Run, task: Task) -> None:
        task.scheduled_id = run.write(
            "workflow_task_scheduled",
            task_queue=TaskQueue(name=QUEUE),
            start_to_close_timeout=Duration(seconds=int(TASK_SECONDS)),
            attempt=task.attempt,
        ).event_id

    def _write_started(self, run: Run, task: Task) -> None:
        task.started_id = run.write("workflow_task_started", **self._of_start(run, task)).event_id

    def _of_start(self, run: Run, task: Task) -> dict[str, Any]:
        size, length = run.history.bytes, len(run.history)
        return {
            "scheduled_event_id": task.scheduled_id,
            "identity": task.worker.name if task.worker else "",
            "request_id": str(uuid4()),
            "history_size_bytes": size,
            "suggest_continue_as_new": length >= SUGGESTED_EVENTS or size >= 4 * 1024**2,
        }

    def make_normal(self, run: Run, task: Task) -> None:
        task.speculative = False
        before = len(run.history)
        self._write_scheduled(run, task)
        if task.started:
            self._write_started(run, task)
        for event, at in zip(run.history.events[before:], task.times, strict=False):
            event.event_time.CopyFrom(at)  # the conversation's clock: a replay has to have the same

    def _dispatch(self, run: Run, task: Task) -> None:
        if run.sticky:
            worker = run.sticky
            task.timer = self.later(self._not_taken, run, task, seconds=STICKY_SECONDS)
            if worker.polls:
                self.soon(run.chance, self._start, run, task, worker)
            return
        self.for_any(lambda worker: self._start(run, task, worker), run.chance)

    def for_any(
        self, take: Callable[[SimulatedWorker], None], chance: Random, *, first: SimulatedWorker | None = None
    ) -> None:
        """Gives a task to any worker that polls, once one does."""
        ready = [worker for worker in self.workers if worker.polls]
        if not ready:
            self.backlog.append((take, chance))
            return
        worker = first if first in ready else None
        self.soon(chance, take, worker or chance.choice(ready))

    def polls(self, worker: SimulatedWorker) -> None:
        """A worker begins to ask for tasks."""
        waiting, self.backlog = self.backlog, []
        for take, chance in waiting:
            self.soon(chance, take, worker)

    def _not_taken(self, run: Run, task: Task) -> None:
        """Its own worker did not come for it."""
        if run.task is not task or task.started:
            return
        if task.speculative:
            self.make_normal(run, task)
        self.count("sticky timeouts")
        run.write(
            "workflow_task_timed_out",
            scheduled_event_id=task.scheduled_id,
            timeout_type=TimeoutType.TIMEOUT_TYPE_SCHEDULE_TO_START,
        )
        self._again(run)

    def release(self, run: Run) -> None:
        """Any worker may have the next task, the one at hand included."""
        run.sticky = None
        task = run.task
        if task and not task.started:
            task.stop_clock()
            self._dispatch(run, task)

    def _start(self, run: Run, task: Task, worker: SimulatedWorker) -> None:
        if run.task is not task or task.started or run.closed:
            return
        if not worker.polls:
            if run.sticky is None:
                self.for_any(lambda other: self._start(run, task, other), run.chance)
            return
        task.stop_clock()
        task.worker = worker
        task.updates = [update for update in run.updates.values() if update.waits]
        for update in task.updates:
            update.sent = True
        events: Iterable[HistoryEvent] = ()
        if task.speculative:
            events = self._virtual(run, task)
        else:
            self._write_started(run, task)
        task.timer = self.later(self._task_timed_out, run, task, seconds=TASK_SECONDS)
        self.count("workflow tasks")
        worker.take_workflow_task(run, task, [*run.history.events, *events])

    def _virtual(self, run: Run, task: Task) -> list[HistoryEvent]:
        """The events of a speculative task, which the history does not have, or not yet."""
        beyond = run.history.beyond()
        scheduled = beyond.add("workflow_task_scheduled", attempt=task.attempt)
        task.scheduled_id = scheduled.event_id
        started = beyond.add("workflow_task_started", **self._of_start(run, task))
        task.started_id, run.history.started_at = started.event_id, beyond.started_at
        task.times = scheduled.event_time, started.event_time
        return [scheduled, started]

    def _task_timed_out(self, run: Run, task: Task) -> None:
        if run.task is not task:
            return
        if task.speculative:
            self.make_normal(run, task)
        self.count("workflow task timeouts")
        run.write(
            "workflow_task_timed_out",
            scheduled_event_id=task.scheduled_id,
            started_event_id=task.started_id,
            timeout_type=TimeoutType.TIMEOUT_TYPE_START_TO_CLOSE,
        )
        for update in task.updates:
            update.sent = False
        self._again(run)

    def task_failed(self, run: Run, task: Task, cause: int, failure: Failure | None = None) -> None:
        if run.task is not task:
            return
        if task.speculative:
            self.make_normal(run, task)
        run.write(
            "workflow_task_failed",
            scheduled_event_id=task.scheduled_id,
            started_event_id=task.started_id,
            cause=cause,
            failure=failure,
        )
        for update in task.updates:
            if not update.done.done() and not update.accepted_id:
                why = "unexpected workflow task failure"
                fail(update.done, RPCError(why, RPCStatusCode.FAILED_PRECONDITION, b""))
        unhandled = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND
        self._again(run, failed=cause != unhandled)

    def _again(self, run: Run, *, failed: bool = True) -> None:
        """The task is scheduled once more, for any worker."""
        if run.task:
            run.task.stop_clock()
        run.failures = run.failures + 1 if failed else 0
        run.task, run.sticky = None, None
        if run.flush():
            run.failures = 0
        if run.failures > 1:  # the server waits before it tries again
            self.later(self.need_task, run, seconds=min(2.0**run.failures, 60.0))
            return
        self.need_task(run)

    def task_done(self, run: Run, task: Task, *, worker: SimulatedWorker) -> None:
        """After its events were written."""
        task.stop_clock()
        run.failures = 0
        if run.closed:
            self.ended(run)
            self.on_task(run)
            return
        run.task, run.sticky = None, worker
        self.on_task(run)
        brought = run.flush()
        if brought:
            self.need_task(run)
        elif any(update.waits for update in run.updates.values()):
            self.need_task(run, speculative=True)
        limits.check(self, run)

    def ask(self, run: Run, name: str, arguments: Any) -> Any:
        """A query, answered by whoever has the run in memory, or by any worker."""
        ready = [worker for worker in self.workers if worker.polls]
        worker = run.sticky if run.sticky in ready else self.chances.of("asked", run.workflow_id).choice(ready)
        return worker.ask(run, name, arguments)

    def ended(self, run: Run) -> None:
        raise NotImplementedError


def fail(future: asyncio.Future[Outcome], error: Exception) -> None:
    future.set_exception(error)
    future.exception()  # or asyncio would say that nobody asked for it
