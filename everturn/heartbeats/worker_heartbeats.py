"""The heartbeats of all activities of a worker: those that run, those that have not begun, and those that are over and
whose result is still on its way.

While the event loop runs, each activity beats through it, and cancellations come in the same way. While user code
blocks the loop, a thread beats in its place (`blocked_loop.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Self

import temporalio.worker
from temporalio import activity
from temporalio.client import AsyncActivityCancelledError, Client
from temporalio.service import RPCError

from everturn.activities.attempts import TaskDelays
from everturn.heartbeats import blocked_loop, heartbeat
from everturn.heartbeats.beats_through_core import through_core
from everturn.heartbeats.blocked_loop import BlockedLoop
from everturn.heartbeats.heartbeat import Heartbeat, as_this_heartbeat
from everturn.heartbeats.profiles import QUICK, HeartbeatProfile
from everturn.heartbeats.task_intake import TaskIntake, taking_tasks
from everturn.lost_workers.journal import Journal, task_of, token_of
from everturn.lost_workers.poison_calls import details_left, first_details, too_late
from everturn.temporal.temporal_errors import not_found

LATE_START_SECONDS = 2.0
"""How late after its start a try may begin without asking the server whether it is still this worker's."""


class Heartbeats:
    """Beats for all activities of a worker; start and stop it with the worker."""

    def __init__(self, client: Client, journal: Journal, profile: HeartbeatProfile = QUICK) -> None:
        self._client = client
        self._profile = profile
        self._journal = journal
        self._lags = TaskDelays()
        self._running: set[Heartbeat] = set()
        self._ending: dict[bytes, Heartbeat] = {}
        """By task token: those that are over, and whose result the SDK has not got yet. It is on its way, through the
        event loop and perhaps through external storage."""
        self.intake: TaskIntake | None = None
        """Set once the worker is there, if its SDK allows it. Without it, an activity that the worker has and has not
        begun has no heartbeats."""
        self._blocked_loop = BlockedLoop(client, self._running, self._ending)

    def __enter__(self) -> Self:
        self._blocked_loop.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._blocked_loop.stop()

    @contextmanager
    def beating(self, *, begins: bool = True) -> Iterator[Heartbeat]:
        """Beats for the activity that runs here until the block is left. `begins`: from here on, it may take effect;
        otherwise `begin_tool` says when."""
        info = activity.info()
        beat = Heartbeat(
            info.task_token,
            asyncio.get_running_loop(),
            details_left=details_left(),
            interval=self._interval_for(info.heartbeat_timeout),
            run_id=info.workflow_run_id or "",
        )
        beat.start()
        self._running.add(beat)
        self.begin_activity(info)
        try:
            self._journal.take_task(
                task_of(
                    info.task_token,
                    conversation_id=info.workflow_id or "",
                    run_id=info.workflow_run_id or "",
                    activity=info.activity_type,
                )
            )
            if begins:
                self.begin_tool(info.task_token)
            with as_this_heartbeat(beat):
                yield beat
        finally:
            self._running.discard(beat)
            beat.stop()
            if self.intake:
                self._ending[info.task_token] = beat
            else:
                self._journal.drop_task(token_of(info.task_token))

    def take_from(self, worker: temporalio.worker.Worker) -> None:
        """To be called before the worker runs: from then on, what it is given has heartbeats, begun or not."""
        self._blocked_loop.through_core = through_core(worker)
        self.intake = taking_tasks(
            worker,
            self._journal,
            on_complete=self._forget_ended,
            look_seconds=heartbeat.INTERVAL_SECONDS / 2,
            longest_seconds=blocked_loop.LONGEST_STAND_IN_SECONDS,
        )

    def begin_activity(self, info: activity.Info) -> None:
        """The activity is begun: whether it has heartbeats is its own business now."""
        if self.intake:
            self.intake.begin_task(info.task_token)

    def begin_tool(self, task_token: bytes) -> None:
        """The tool of this activity begins: from here on, it may take effect. May be called from any thread, and again
        for the same activity."""
        self._journal.begin_task(token_of(task_token))

    def _forget_ended(self, task_token: bytes) -> None:
        """The SDK's core has the activity's result."""
        self._ending.pop(task_token, None)
        self._journal.drop_task(token_of(task_token))

    def hurry_run(self, run_id: str) -> None:
        """To be called if a workflow run cancels something. The run's activities on this worker then beat soon, and so
        learn whether it is one of them. May be called from any thread."""
        for beat in [beat for beat in list(self._running) if beat.run_id == run_id]:
            with suppress(RuntimeError):
                beat.loop.call_soon_threadsafe(beat.beat_sooner)

    def _interval_for(self, timeout: timedelta | None) -> float:
        """Seconds between two beats. A worker with another profile may have set the activity's time-out."""
        if self._profile is QUICK or timeout is None or timeout < self._profile.timeout:
            return heartbeat.INTERVAL_SECONDS
        return self._profile.interval_seconds

    async def check_ours(self) -> None:
        """Raises the error of a try that came too late, if this activity is no longer this worker's to run.

        A task can wait in a worker that is frozen, or whose event loop is blocked, until the server has given it to
        another worker. If both ran it, it would happen twice. The server is asked only after a late start.
        """
        info = activity.info()
        if info.is_local or self._lags.lag_of(info.started_time) < LATE_START_SECONDS:
            return
        handle = self._client.get_async_activity_handle(task_token=info.task_token)
        try:
            await handle.heartbeat(*first_details())  # keeps what earlier tries left
        except AsyncActivityCancelledError:
            return  # the cancellation comes in by itself
        except RPCError as error:
            if not_found(error):
                raise too_late() from None
