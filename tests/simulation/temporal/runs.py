"""One run of a workflow, as the server holds it: its history, the workflow task at hand, and what came meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.common.v1 import Memo, SearchAttributes
from temporalio.api.enums.v1 import WorkflowExecutionStatus as Status
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.update.v1 import Outcome, Request

from everturn import names
from tests.simulation.temporal.history import CLOSED, History

if TYPE_CHECKING:
    from random import Random

    from tests.simulation.machines.workers import SimulatedWorker
    from tests.simulation.temporal.activities import Activity

STATUS = {
    "workflow_execution_completed": Status.WORKFLOW_EXECUTION_STATUS_COMPLETED,
    "workflow_execution_failed": Status.WORKFLOW_EXECUTION_STATUS_FAILED,
    "workflow_execution_canceled": Status.WORKFLOW_EXECUTION_STATUS_CANCELED,
    "workflow_execution_terminated": Status.WORKFLOW_EXECUTION_STATUS_TERMINATED,
    "workflow_execution_timed_out": Status.WORKFLOW_EXECUTION_STATUS_TIMED_OUT,
    "workflow_execution_continued_as_new": Status.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW,
}

LAST_IN_A_BATCH = frozenset(
    [f"activity_task_{how}" for how in ("completed", "failed", "canceled", "timed_out")]
    + [f"child_workflow_execution_{how}" for how in ("completed", "failed", "canceled", "timed_out", "terminated")]
)
"""Of what came while a worker had the task, the server writes these after everything else."""


@dataclass(eq=False)
class Update:
    request: Request
    done: asyncio.Future[Outcome]
    """Its result, or the RPCError that it was aborted with."""
    sent: bool = False
    admitted: bool = False
    """An event holds its request: a reset has applied it again."""
    accepted_id: int = 0
    """The event by which it was accepted."""

    @property
    def id(self) -> str:
        return self.request.meta.update_id

    @property
    def waits(self) -> bool:
        return not (self.sent or self.accepted_id or self.done.done())


@dataclass(eq=False)
class Task:
    """A workflow task."""

    attempt: int = 1
    speculative: bool = False
    """It has no events unless the conversation takes one of the updates that it brings."""
    scheduled_id: int = 0
    started_id: int = 0
    times: tuple[Timestamp, ...] = ()
    """When it was scheduled and started, for what is written of a speculative one afterwards."""
    worker: SimulatedWorker | None = None
    updates: list[Update] = field(default_factory=list)
    timer: asyncio.TimerHandle | None = None

    @property
    def started(self) -> bool:
        return self.worker is not None

    def stop_clock(self) -> None:
        if self.timer:
            self.timer.cancel()
        self.timer = None


@dataclass(eq=False)
class Run:
    id: str
    workflow_id: str
    first_run_id: str
    chance: Random
    """By which what the server does about it takes its time."""
    name: str
    """Of its conversation, and how many runs that had before."""
    type: str = names.CONVERSATION
    """Of workflow."""
    history: History = field(default_factory=History)
    status: int = Status.WORKFLOW_EXECUTION_STATUS_RUNNING
    next_run_id: str = ""
    task: Task | None = None
    sticky: SimulatedWorker | None = None
    """Who had its last task, and is offered the next one alone."""
    buffered: list[tuple[str, Callable[[], HistoryEvent]]] = field(default_factory=list)
    """What came while a worker had the task: written down once that is over."""
    activities: dict[int, Activity] = field(default_factory=dict)
    """By the event that scheduled them: those that have not ended."""
    timers: dict[str, tuple[int, asyncio.TimerHandle]] = field(default_factory=dict)
    children: dict[int, str] = field(default_factory=dict)
    """The runs of child workflows that have not ended, by the event that began them."""
    parent: tuple[str, int] | None = None
    """Its run, and the event there that began this one."""
    updates: dict[str, Update] = field(default_factory=dict)
    cancel_requested: bool = False
    attributes: SearchAttributes = field(default_factory=SearchAttributes)
    memo: Memo = field(default_factory=Memo)
    says_flags: bool = False
    """One of its events has the flags of the SDK's core."""
    failures: int = 0
    """Workflow tasks in a row that failed or timed out."""
    deleted: bool = False
    """Its retention is over."""
    base: tuple[str, int] | None = None
    """The run that this one was reset from, and how many events the two share."""
    _watchers: list[asyncio.Future[None]] = field(default_factory=list)

    @property
    def closed(self) -> bool:
        return self.status != Status.WORKFLOW_EXECUTION_STATUS_RUNNING

    @property
    def started(self) -> Any:
        return self.history.events[0].workflow_execution_started_event_attributes

    def write(self, name: str, *, beside: dict[str, Any] | None = None, **values: Any) -> HistoryEvent:
        event = self.history.add(name, beside=beside, **values)
        if name in CLOSED:
            self.status = STATUS[name]
        self._tell()
        return event

    def flush(self) -> bool:
        """Writes what was held back; whether there was any."""
        held, self.buffered = self.buffered, []
        for _, write in sorted(held, key=lambda one: one[0] in LAST_IN_A_BATCH):
            write()
        return bool(held)

    async def changed(self, since: int) -> None:
        """Waits until there are more events than `since`, or the run is over."""
        while len(self.history) <= since and not self.closed and not self.deleted:
            watcher: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._watchers.append(watcher)
            await watcher

    def _tell(self) -> None:
        watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            if not watcher.done():
                watcher.set_result(None)
