"""How many workers share a provider's limit: those that poll the task queue."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from temporalio.client import Client

from everturn.client.pollers import find_live_workers
from everturn.errors import Unreachable
from everturn.logs import get_logger
from everturn.providers.rate_limits import limit_queue

_log = get_logger("everturn.limit")


class WorkerCount:
    """How many workers share the limits, as Temporal said last."""

    def __init__(self, client: Client, task_queue: str, *, activities: bool) -> None:
        self._client = client
        self._task_queue = task_queue
        self._activities = activities
        self._workers = 0
        self.taken_at = self.changed_at = asyncio.get_running_loop().time()

    async def take_count(self, *, least_count: int = 1) -> None:
        self.taken_at = asyncio.get_running_loop().time()
        with suppress(Unreachable):  # the last count stays
            workers = await count_sharing(self._client, self._task_queue, activities=self._activities)
            if workers != self._workers:
                self._workers = workers
                self.changed_at = self.taken_at
            limit_queue.shared_by(max(workers, least_count))
            _log.debug("limit.shared", workers=workers, task_queue=self._task_queue)


async def count_sharing(client: Client, task_queue: str, *, activities: bool = False) -> int:
    """How many workers share the limits. Temporal shows one that was killed for another minute: a worker that is
    killed again and again would be counted many times, and the others would hold back for it. Those of this machine
    (or container) are known to be gone. Raises Unreachable."""
    return len(await find_live_workers(client, task_queue, activities=activities))
