"""Objects that belong to one event loop and can't be used from another: connections, and waiting calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def of_this_loop(kept: dict[asyncio.AbstractEventLoop, T], make: Callable[[], T]) -> T:
    """The object in `kept` for the running event loop; it is made if there is none yet. The objects of closed loops are
    dropped: nothing could use or close them any more."""
    loop = asyncio.get_running_loop()
    if loop not in kept:
        for other in [*kept]:
            if other.is_closed():
                del kept[other]
        kept[loop] = make()
    return kept[loop]
