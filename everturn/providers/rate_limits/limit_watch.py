"""While a provider limits calls: has the workers counted that share the limit, and keeps the numbers for Prometheus."""

from __future__ import annotations

import asyncio
from typing import Final
from weakref import WeakKeyDictionary

from temporalio.client import Client
from temporalio.common import MetricMeter

from everturn.providers.rate_limits import limit_queue
from everturn.providers.rate_limits.limit_queue import Limit
from everturn.providers.rate_limits.worker_count import WorkerCount

LOOK_SECONDS: Final = 2.0
COUNT_SECONDS: Final = 20.0
"""Between two questions for the workers of the queue, while a provider limits calls."""

OFTEN_SECONDS: Final = 60.0
"""For so long after the start, and after each change of their number, the question comes each LOOK_SECONDS: workers
are seldom started or stopped alone."""

FIRST_SHARE: Final = 4
"""Workers that are started together see each other a moment later: until it has counted twice, each takes it that a
known limit is shared by as many as this."""


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
    count = WorkerCount(client, task_queue, activities=activities)
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
