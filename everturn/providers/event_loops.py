"""What belongs to one event loop, and can't be used from another: connections, and what waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def of_this_loop(kept: dict[asyncio.AbstractEventLoop, T], make: Callable[[], T]) -> T:
    """What is `kept` for the loop that runs here; it is made if there is nothing yet. What closed loops had is
    dropped: nothing could use it any more, nor close it."""
    loop = asyncio.get_running_loop()
    if loop not in kept:
        for other in [*kept]:
            if other.is_closed():
                del kept[other]
        kept[loop] = make()
    return kept[loop]
