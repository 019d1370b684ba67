"""The crash test on a real cluster: its parts fail one after the other, while workers and clients are killed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from temporalio.api.workflowservice.v1 import ListOpenWorkflowExecutionsRequest
from temporalio.service import RPCError

from tests.crash.cast import VERSION
from tests.crash.storm import Plan, Restart, Storm
from tests.crash.workers import WorkerProcess
from tests.stack.cluster import SERVICES
from tests.stack.hosts import HERE
from tests.stack.stack import Stack

DISK_MB = 1_500
"""Of the database: it holds a run of the test several times over, until it is filled on purpose."""
DYNAMIC = {"history.workflowIdReuseMinimalInterval": "0s"}
AWAY_SECONDS = 3.0
"""What is killed stays away for so long."""
CUT_SECONDS = 15.0
"""Longer than the other services need to miss a host."""
FULL_SECONDS = 8.0
SETTLE_SECONDS = 2.0

PLAN: dict[str, Any] = {
    "conversations": 120,
    "kills": 40,
    "workers": 3,
    "restarts": 10,
    "pace": 8.0,
    "patience": 240.0,
    # Workers are machines of their own: what a killed one had in hand is missed by its heartbeats, unless a worker
    # comes back on its machine. And a cluster that has lost a host takes some seconds to share out its work anew.
    "resume": 40.0,
}


class StackStorm(Storm):
    """Where Storm restarts its server, the next of ACCIDENTS happens, in the order of the seed."""

    here = HERE

    def __init__(self, plan: Plan, folder: Path, stack: Stack) -> None:
        super().__init__(plan, folder, server=stack)
        self.stack = stack
        self.version = 1
        self.happened: list[tuple[str, float]] = []
        """And how many seconds it took until the cluster answered again."""
        self.accidents = [*ACCIDENTS]
        self.rng.shuffle(self.accidents)

    async def _restart_server(self, before: asyncio.Task[None] | None = None) -> None:
        if before:
            await before
        what = self.accidents[len(self.happened) % len(self.accidents)]
        began = time.time()
        await ACCIDENTS[what](self)
        await self._until_it_answers()
        self.restarts.append(Restart(began, time.time()))
        self.happened.append((what, time.time() - began))

    async def _until_it_answers(self) -> None:
        """History, matching and the database have to take part in it."""
        service = self.client.temporal.workflow_service
        while True:
            try:
                await service.list_open_workflow_executions(
                    ListOpenWorkflowExecutionsRequest(namespace="default", maximum_page_size=1)
                )
                for number in [*self.living][:8]:
                    await self.client.temporal.get_workflow_handle(self.stories[number].id).describe()
            except RPCError as error:
                if error.status.name != "NOT_FOUND":
                    await asyncio.sleep(0.2)
                    continue
            return

    # ------------------------------------------------------------ what happens

    async def _kill_service(self, name: str) -> None:
        unit = self.stack.cluster.services[name]
        await asyncio.to_thread(unit.kill)
        await asyncio.sleep(AWAY_SECONDS)
        unit.start()
        await asyncio.to_thread(self.stack.cluster.wait_for, name)

    async def _kill_database(self) -> None:
        await asyncio.to_thread(self.stack.database.kill)
        await asyncio.sleep(AWAY_SECONDS)
        await asyncio.to_thread(self.stack.database.start)

    async def _cut_a_history_host(self) -> None:
        host = self.stack.cluster.services["history-2"].host
        host.cut()
        await asyncio.sleep(CUT_SECONDS)
        host.heal()

    async def _cut_a_worker(self) -> None:
        """It goes on with what it has in hand, and nobody hears of it; others take that over."""
        host = (await self._someone_at_work()).host
        assert host is not None
        host.cut()
        await asyncio.sleep(CUT_SECONDS)
        host.heal()

    async def _roll_the_cluster(self) -> None:
        for name, unit in self.stack.cluster.services.items():
            await asyncio.to_thread(unit.stop)
            unit.start()
            await asyncio.to_thread(self.stack.cluster.wait_for, name)
            await asyncio.sleep(SETTLE_SECONDS)

    async def _roll_the_workers(self) -> None:
        """Each drains, and one of the new version comes: with an agent that has one tool more."""
        self.version += 1
        for worker in [*self.workers]:
            if worker in self.workers:  # it was not killed meanwhile
                self.workers.remove(worker)
                await asyncio.to_thread(worker.stop)
                self.workers.append(self._start_worker())

    async def _fill_the_disk(self) -> None:
        await asyncio.to_thread(self.stack.database.fill_disk)
        await asyncio.sleep(FULL_SECONDS)
        await asyncio.to_thread(self.stack.database.free_disk)
        while not await asyncio.to_thread(self.stack.database.answers):  # noqa: ASYNC110 - a process
            await asyncio.sleep(0.2)

    # ------------------------------------------------------------ workers on hosts

    def _start_worker(self) -> WorkerProcess:
        taken = [worker.host for worker in self.workers if worker.process.poll() is None]
        host = min(self.stack.worker_hosts, key=taken.count)
        return self._worker(host=host, **{VERSION: str(self.version)})


ACCIDENTS: dict[str, Callable[[StackStorm], Awaitable[None]]] = {
    **{f"{name}-1 killed": partial(StackStorm._kill_service, name=f"{name}-1") for name in SERVICES},
    "PostgreSQL killed": StackStorm._kill_database,
    "history-2 cut off": StackStorm._cut_a_history_host,
    "a worker's host cut off": StackStorm._cut_a_worker,
    "the cluster restarted, one by one": StackStorm._roll_the_cluster,
    "the workers restarted with a new version": StackStorm._roll_the_workers,
    "the database's disk full": StackStorm._fill_the_disk,
}


def report(storm: StackStorm) -> str:
    """What happened to the cluster, in order."""
    lines = [f"  {what}: it answered again after {seconds:.0f} s" for what, seconds in storm.happened]
    units = [unit for unit in storm.stack.units if unit.ended_by_itself]
    lines += [f"  {unit.name} ended by itself, {unit.ended_by_itself} times" for unit in units]
    return "\n".join(["what happened to the cluster:", *lines])
