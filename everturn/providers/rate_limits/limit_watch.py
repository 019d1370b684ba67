"""While a provider limits calls: how many workers share the limit, and the numbers for Prometheus."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final
from weakref import WeakKeyDictionary

from temporalio.client import Client
from temporalio.common import MetricMeter

from everturn.client.pollers import find_pollers, sorted_out
from everturn.errors import Unreachable
from everturn.logs import get_logger
from everturn.providers.rate_limits import limit_queue
from everturn.providers.rate_limits.limit_queue import Limit

LOOK_SECONDS: Final = 2.0
COUNT_SECONDS: Final = 20.0
"""Between two questions for the workers of the queue, while a provider limits calls."""

OFTEN_SECONDS: Final = 60.0
"""For so long after the start, and after each change of their number, the question comes each LOOK_SECONDS: workers
are seldom started or stopped alone."""

FIRST_SHARE: Final = 4
"""Workers that are started together see each other a moment later: until it has counted twice, each takes it that a
known limit is shared by as many as this."""

_log = get_logger("everturn.limit")


class LimitMetrics:
    """everturn_rate_limit_*, by provider and by the variable that holds the key."""

    def __init__(self, meter: MetricMeter) -> None:
        self._waiting = meter.create_gauge("everturn_rate_limit_waiting", "Model turns that wait for a rate limit.")
        self._rate = meter.create_gauge_float(
            "everturn_rate_limit_rate", "Calls a second that the rate limit allows this worker."
        )
        self._refusals = meter.create_counter("everturn_rate_limit_refusals", "Answers of 429.")
        self._counted = WeakKeyDictionary[Limit, int]()

    def record_limits(self) -> None:
        for limit in limit_queue.met_limits():
            labels = {"provider": limit.provider, "key": limit.key_env}
            self._waiting.set(limit.waiting_calls, labels)
            if (rate := limit.limiter.rate) is not None:
                self._rate.set(rate, labels)
            refused = limit.limiter.refused_calls
            if new := refused - self._counted.get(limit, 0):
                self._refusals.add(new, labels)
            self._counted[limit] = refused


async def watch_limits(
    client: Client,
    task_queue: str,
    known: limit_queue.Known,
    metrics: LimitMetrics | None,
    *,
    activities: bool = False,
) -> None:
    """Runs until it is cancelled. While none does, it sends the server no request. `activities`: the queue is of
    activities alone, and has no pollers for conversations."""
    limit_queue.set_known_limits(known)
    felt = limit_queue.felt_event()
    now = asyncio.get_running_loop().time
    count = _SharedCount(client, task_queue, activities=activities)
    if known:
        felt.set()
        limit_queue.shared_by(FIRST_SHARE)
        await count.take_count(least_count=FIRST_SHARE)
        await asyncio.sleep(LOOK_SECONDS)
    while True:
        await felt.wait()
        felt.clear()
        await count.take_count()
        while True:
            if metrics:
                metrics.record_limits()
            settled = not known or now() - count.changed_at >= OFTEN_SECONDS
            if settled and not any(limit.is_active for limit in limit_queue.met_limits()):
                break
            await asyncio.sleep(LOOK_SECONDS)
            if now() - count.taken_at >= COUNT_SECONDS or now() - count.changed_at < OFTEN_SECONDS:
                await count.take_count()


class _SharedCount:
    """How many workers share the limits, as the server says."""

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
    pollers = await find_pollers(client, task_queue, activities=activities)
    return len(sorted_out(poller.identity for poller in pollers)[0])
