"""A task that fails unnoticed in a unit test is noticed."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from tests.support.watched_tasks import watched_tasks


@pytest.mark.parametrize(
    ("afterwards", "unnoticed"), [("nothing", True), ("it is cancelled", True), ("it is awaited", False)]
)
async def test_a_task_that_fails_is_noticed_by_who_looks_at_its_error(afterwards: str, *, unnoticed: bool) -> None:
    async def fail() -> None:
        raise LookupError

    with watched_tasks() as tasks:
        task = asyncio.create_task(fail())
        await asyncio.sleep(0)
        match afterwards:
            case "it is cancelled":
                task.cancel()
            case "it is awaited":
                with suppress(LookupError):
                    await task
            case _:
                pass
    assert [watched.failed_unnoticed for watched in tasks] == [unnoticed]
    task.exception()  # or Python says so, too


async def test_a_task_that_is_cancelled_in_time_has_not_failed() -> None:
    with watched_tasks() as tasks:
        task = asyncio.create_task(asyncio.sleep(60))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
    assert [watched.failed_unnoticed for watched in tasks] == [False]
