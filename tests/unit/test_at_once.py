"""Many things at the same time, so many and no more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from everturn.system.bounded_concurrency import at_once


async def numbers(count: int) -> AsyncIterator[int]:
    for number in range(count):
        yield number


async def test_no_more_run_than_there_are_places_and_all_are_done() -> None:
    running = most = 0

    async def double(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return 2 * number

    done = [one async for one in at_once(numbers(20), double, most=3)]
    assert sorted(done) == [2 * number for number in range(20)]
    assert most == 3


async def test_a_failure_ends_it_all_and_leaves_nothing_running() -> None:
    begun: list[int] = []
    ended: list[int] = []

    async def fails(number: int) -> int:
        begun.append(number)
        try:
            if number == 1:
                raise ValueError("no")
            await asyncio.Event().wait()
            return number
        finally:
            ended.append(number)

    with pytest.raises(ValueError, match="no"):
        [one async for one in at_once(numbers(9), fails, most=3)]
    assert sorted(begun) == sorted(ended) == [0, 1, 2]
