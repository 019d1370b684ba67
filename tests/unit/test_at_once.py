"""Many things at the same time, so many and no more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from everturn.system.bounded_concurrency import at_once, in_order


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

    done = [doubled async for doubled in at_once(numbers(20), double, max_running=3)]
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
        [doubled async for doubled in at_once(numbers(9), fails, max_running=3)]
    assert sorted(begun) == sorted(ended) == [0, 1, 2]


async def test_results_can_come_in_the_order_of_the_items() -> None:
    first = asyncio.Event()

    async def the_first_ends_last(number: int) -> int:
        if number:
            first.set()
        else:
            await first.wait()
        return 2 * number

    assert await in_order(numbers(5), the_first_ends_last, max_running=2) == [0, 2, 4, 6, 8]
    assert await in_order(range(5), the_first_ends_last, max_running=2) == [0, 2, 4, 6, 8]


async def test_an_item_is_not_taken_before_there_is_room_for_it() -> None:
    taken: list[int] = []
    goes_on = asyncio.Event()

    async def many() -> AsyncIterator[int]:
        async for number in numbers(9):
            taken.append(number)
            yield number

    doing = asyncio.create_task(in_order(many(), lambda _: goes_on.wait(), max_running=3))
    for _ in range(20):
        await asyncio.sleep(0)
    assert taken == [0, 1, 2]
    goes_on.set()
    assert len(await doing) == 9
