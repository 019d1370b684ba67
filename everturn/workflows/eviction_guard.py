"""Whether a conversation's own code runs: while Python clears away what a stopped worker left, each `finally` is run,
perhaps in the middle of another workflow, which would get this one's commands."""

from __future__ import annotations

import asyncio


class OwnLoop:
    """To be made by the conversation itself."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    @property
    def is_running(self) -> bool:
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False
