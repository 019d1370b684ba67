"""Does many things at the same time, up to a limit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


async def at_once(items: AsyncIterable[T], do: Callable[[T], Awaitable[R]], *, most: int) -> AsyncGenerator[R]:
    """The result of `do` for each item, as they end. An item is taken from the source when there is room for it. If
    `do` raises, all of it ends."""
    source, running = aiter(items), set[asyncio.Future[R]]()
    more = True
    try:
        while more or running:
            while more and len(running) < most:
                try:
                    running.add(asyncio.ensure_future(do(await anext(source))))
                except StopAsyncIteration:
                    more = False
            if running:
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for one in done:
                    yield one.result()
    finally:
        for one in running:
            one.cancel()
        await asyncio.gather(*running, return_exceptions=True)
