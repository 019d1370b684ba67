"""Takes a worker's activities from the SDK's core on a thread of its own, and beats for those that have not begun.

The server counts an activity's heartbeat timeout from the moment at which it hands the activity to the worker. The SDK
takes activities on the worker's event loop, one after the other. While a tool blocks the loop, or many calls come at
once, what it was given lies in the core, where nothing beats for it. The server would give it up as lost, though
the worker lives: a `read` call would run twice, and a `once` call that never began would wait for a person.

So each activity is known here from its arrival. It has heartbeats until its own begin, and the journal says that the
worker has it: if the worker is killed, others know that it has not begun.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import temporalio.worker

from everturn.activities.user_activities import is_ours
from everturn.lost_workers.journal import Journal, task_of


@dataclass
class TakenTask:
    """An activity that the worker has and has not begun."""

    start: Any
    """temporalio.bridge.proto.activity_task.Start: its heartbeat details, those of the try before, go on with it."""
    taken_at: float = field(default_factory=time.monotonic)
    last_beat: float = field(default_factory=time.monotonic)

    @property
    def timeout_seconds(self) -> float:
        return float(self.start.heartbeat_timeout.ToTimedelta().total_seconds())


class TaskIntake:
    """Stands between a worker's activities and the core: as the core's `bridge.Worker`, with a poll of its own."""

    def __init__(
        self,
        core: Any,
        journal: Journal,
        *,
        on_complete: Callable[[bytes], None],
        look_seconds: float,
        longest_seconds: float,
    ) -> None:
        """`core`: the temporalio.bridge.worker.Worker; `on_complete` gets the token of each activity when its result is
        given to the core; `look_seconds`: between two looks at those that have not begun; `longest_seconds`: how long
        to beat for one of them."""
        self._core = core
        self._journal = journal
        self._on_complete = on_complete
        self._look_seconds = look_seconds
        self._longest_seconds = longest_seconds
        self._not_begun: dict[bytes, TakenTask] = {}
        """By task token. Only those that have a heartbeat timeout."""
        self._tasks: asyncio.Queue[Any] = asyncio.Queue()
        """The worker's, on its loop: activities, and at last the exception that ends the polls."""
        self._loop: asyncio.AbstractEventLoop | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._core, name)

    def begin_task(self, task_token: bytes) -> None:
        """The activity begins: its own heartbeats take over."""
        self._not_begun.pop(task_token, None)

    async def poll_activity_task(self) -> Any:
        """As temporalio.bridge.worker.Worker has it; to be called on the worker's loop."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            threading.Thread(target=self._run_thread, name="everturn-intake", daemon=True).start()
        task = await self._tasks.get()
        if isinstance(task, BaseException):
            self._tasks.put_nowait(task)  # each further poll ends in the same way
            raise task
        return task

    async def complete_activity_task(self, completion: Any) -> None:
        """As temporalio.bridge.worker.Worker has it."""
        self.begin_task(completion.task_token)
        self._on_complete(completion.task_token)
        await self._core.complete_activity_task(completion)

    # ------------------------------------------------------------ on its own thread

    def _run_thread(self) -> None:
        with suppress(RuntimeError):  # the worker's loop was closed: its program ends
            asyncio.run(self._take_all())

    async def _take_all(self) -> None:
        beats = asyncio.create_task(self._beat_for_all())
        try:
            while True:
                task = await self._core.poll_activity_task()
                if task.HasField("start") and _has_heartbeats(task.start):
                    self._take_task(task)
                self._hand_over(task)
        except Exception as error:  # noqa: BLE001 - the SDK tells a shutdown from a failure
            self._hand_over(error)
        finally:
            beats.cancel()

    def _take_task(self, task: Any) -> None:
        self._not_begun[task.task_token] = TakenTask(task.start)
        if is_ours(task.start.workflow_type, task.start.activity_id):
            execution = task.start.workflow_execution
            self._journal.take_task(
                task_of(
                    task.task_token,
                    conversation_id=execution.workflow_id,
                    run_id=execution.run_id,
                    activity=task.start.activity_type,
                )
            )

    def _hand_over(self, task: Any) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._tasks.put_nowait, task)

    async def _beat_for_all(self) -> None:
        from temporalio.bridge.proto import ActivityHeartbeat

        while True:
            await asyncio.sleep(self._look_seconds)
            for task_token, task in self._tasks_due():
                task.last_beat = time.monotonic()
                beat = ActivityHeartbeat(task_token=task_token, details=task.start.heartbeat_details)
                with suppress(Exception):  # it has begun or ended meanwhile
                    self._core.record_activity_heartbeat(beat)

    def _tasks_due(self) -> Iterator[tuple[bytes, TakenTask]]:
        now = time.monotonic()
        for task_token, task in list(self._not_begun.items()):
            if now - task.taken_at > self._longest_seconds:
                self.begin_task(task_token)
            elif now - task.last_beat >= task.timeout_seconds / 3:
                yield task_token, task


def _has_heartbeats(start: Any) -> bool:
    return start.HasField("heartbeat_timeout") and not start.is_local


def taking_tasks(worker: temporalio.worker.Worker, journal: Journal, **options: Any) -> TaskIntake | None:
    """Puts an intake into the worker, which has not been run yet: `options` are those of TaskIntake. None if it runs no
    activities, or if this version of the SDK does not let anybody in: what is used here is not its public API."""
    activities: Any = getattr(worker, "_activity_worker", None)
    if activities is None or not hasattr(activities, "_bridge_worker"):
        return None
    core = activities._bridge_worker()
    if not all(hasattr(core, name) for name in ("poll_activity_task", "complete_activity_task")):
        return None
    intake = TaskIntake(core, journal, **options)
    activities._bridge_worker = lambda: intake
    return intake
