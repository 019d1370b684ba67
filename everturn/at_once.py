"""Many things done at the same time, so many of them and no more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


async def at_once(items: AsyncIterable[T], do: Callable[[T], Awaitable[R]], *, most: int) -> AsyncGenerator[R]:
    """What `do` gives for each of the items, in the order in which it is done. An item is taken from the source when
    there is a place for it. What `do` raises ends it all."""
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
