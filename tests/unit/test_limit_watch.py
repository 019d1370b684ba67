"""How soon a worker knows with how many it shares a known limit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, cast

import pytest

from everturn.limits import RateLimit
from everturn.models import Model
from everturn.providers.rate_limits import limit_queue, worker_count
from everturn.providers.rate_limits.limit_queue import limit_of
from everturn.providers.rate_limits.limit_watch import FIRST_SHARE, watch_limits
from tests.support.bounds import Bounds
from tests.support.waiting import eventually

RPM = 120


class Workers:
    """Those that the server shows."""

    def __init__(self) -> None:
        self.count = 1
        self.asked = 0

    async def sharing(self, *_: Any, **__: Any) -> int:
        self.asked += 1
        return self.count


@pytest.fixture
async def workers(bounds: Bounds, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Workers]:
    found = Workers()
    monkeypatch.setattr(worker_count, "count_sharing", found.sharing)
    bounds(limit_look_seconds=0.05)
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    watch = asyncio.create_task(watch_limits(cast("Any", None), "q", {"openai": RateLimit(rpm=RPM)}, None))
    yield found
    watch.cancel()
    with suppress(asyncio.CancelledError):
        await watch
    limit_queue._of_loop.clear()


async def test_a_worker_begins_with_a_part_of_a_known_limit_until_it_has_counted_twice(workers: Workers) -> None:
    await eventually(lambda: workers.asked == 1)
    limiter = limit_of(Model("openai:m")).limiter
    assert limiter.rate == RPM / 60 / FIRST_SHARE
    await eventually(lambda: workers.asked == 2)
    assert limiter.rate == RPM / 60


async def test_workers_that_come_a_moment_later_are_counted_though_no_turn_waits(
    workers: Workers, bounds: Bounds
) -> None:
    limiter = limit_of(Model("openai:m")).limiter
    await eventually(lambda: workers.asked == 3)
    workers.count = 5
    await eventually(lambda: limiter.workers == 5)
    bounds(limit_often_seconds=0.1)
    await asyncio.sleep(0.3)
    asked = workers.asked
    await asyncio.sleep(0.3)
    assert workers.asked == asked, "nobody waits, and their number has not changed for long"
