"""Workers on one machine: each has its real journal there, and finds those of workers that were killed.

What the kernel does at a kill is done here: the journal's lock is free then, and its file stays. A worker looks at the
others' journals when it begins and after a kill, not twice in each second: in between there is nothing to see.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from everturn.lost_workers.journal import LOOK_SECONDS, Journal, Task

if TYPE_CHECKING:
    from tests.simulation.machines.workers import SimulatedWorker
    from tests.simulation.temporal.activities import Activity
    from tests.simulation.temporal.server import Server

NOTICED_SECONDS = LOOK_SECONDS + 4.0
"""After a kill, in worlds in which things may take three seconds on their way. A heartbeat's time-out takes 5."""


class SimulatedJournal(Journal):
    def killed(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _orphans(self) -> Iterator[Task]:
        """In an order that does not hang on the names of files, which are drawn by the real machine."""
        yield from sorted(super()._orphans(), key=lambda task: task["token"])


class Machine:
    def __init__(self, server: Server) -> None:
        self._server = server
        self._folder = Path(tempfile.mkdtemp(prefix="everturn-simulated-"))
        self._journals: dict[SimulatedWorker, SimulatedJournal] = {}

    def journal(self) -> SimulatedJournal:
        return SimulatedJournal(self._folder, scope={"server": "simulated"})

    def began(self, worker: SimulatedWorker, journal: SimulatedJournal) -> None:
        self._journals[worker] = journal
        journal.__enter__()
        self._look(worker)

    def ended(self, worker: SimulatedWorker, *, killed: bool) -> None:
        journal = self._journals.pop(worker)
        if not killed:
            journal.__exit__(None, None, None)
            return
        journal.killed()
        left = [
            (activity, activity.attempt)
            for run in self._server.runs.values()
            for activity in run.activities.values()
            if activity.worker is worker
        ]
        witnesses = [other for other in self._journals if other.polls]
        for other in self._journals:
            self._server.later(self._look, other, seconds=LOOK_SECONDS)
        self._server.later(self._notice, worker, left, witnesses, seconds=NOTICED_SECONDS)

    def _look(self, worker: SimulatedWorker) -> None:
        if worker in self._journals:
            worker._spawn(self._hand_back(worker))

    async def _hand_back(self, worker: SimulatedWorker) -> None:
        await worker.connected()
        if worker in self._journals and await self._journals[worker].hand_back(worker._client):
            self._server.count("journals of killed workers")

    def _notice(
        self, killed: SimulatedWorker, left: list[tuple[Activity, int]], witnesses: list[SimulatedWorker]
    ) -> None:
        """What it ran has been handed back, if another worker of the machine was there all the time."""
        if not any(witness.polls for witness in witnesses):
            return
        for activity, attempt in left:
            waits = activity.worker is killed and activity.attempt == attempt and not activity.over
            if waits and activity.run.activities.get(activity.scheduled.event_id) is activity:
                name = f"{activity.name} of {activity.run.workflow_id}"
                self._server.wrong(f"{killed.name} was killed {NOTICED_SECONDS} s ago, and still has {name}")

    def end(self) -> None:
        for journal in self._journals.values():
            journal.__exit__(None, None, None)
        shutil.rmtree(self._folder, ignore_errors=True)
