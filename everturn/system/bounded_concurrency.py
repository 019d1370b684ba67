"""Does many things at the same time, up to a limit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


async def at_once(items: AsyncIterable[T], do: Callable[[T], Awaitable[R]], *, max_running: int) -> AsyncGenerator[R]:
    """The result of `do` for each item, as they end. An item is taken from the source when there is room for it. If
    `do` raises, all of it ends."""
    source = aiter(items)
    running = set[asyncio.Future[R]]()
    more = True
    try:
        while more or running:
            while more and len(running) < max_running:
                try:
                    running.add(asyncio.ensure_future(do(await anext(source))))
                except StopAsyncIteration:
                    more = False
            if running:
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    yield task.result()
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def in_order(
    items: Iterable[T] | AsyncIterable[T], do: Callable[[T], Awaitable[R]], *, max_running: int
) -> list[R]:
    """All results, in the order of the items. The rest is as for `at_once`."""

    async def run_numbered(item: tuple[int, T]) -> tuple[int, R]:
        position, value = item
        return position, await do(value)

    done = [result async for result in at_once(_enumerated(items), run_numbered, max_running=max_running)]
    return [result for _, result in sorted(done, key=lambda numbered: numbered[0])]


async def _enumerated(items: Iterable[T] | AsyncIterable[T]) -> AsyncGenerator[tuple[int, T]]:
    place = 0
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield place, item
            place += 1
    else:
        for place, item in enumerate(items):
            yield place, item
