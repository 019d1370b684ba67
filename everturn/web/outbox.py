"""What one page has still to be told: bounded, so that a browser that stops reading costs no memory.

Nothing is dropped: who puts events in waits until there is room, and so reads no further in the history. Of the list of
conversations, only the last one is worth telling.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

MAX_CHARS: Final = 1_000_000
"""What may wait, beside one event, however long that is."""


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """One thing on the wire. An event of the conversation's own has no name, and its cursor as its id."""

    name: str
    data: str
    id: str = ""


class Outbox:
    def __init__(self, *, max_chars: int = MAX_CHARS) -> None:
        self._max_chars = max_chars
        self._items: list[ServerSentEvent] = []
        self._chars = 0
        self._list: ServerSentEvent | None = None
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    @property
    def chars(self) -> int:
        return self._chars

    async def put(self, told: ServerSentEvent) -> None:
        """Returns once it is in: after those before it, and not before there is room."""
        while self._chars >= self._max_chars:
            self._room.clear()
            await self._room.wait()
        self._items.append(told)
        self._chars += len(told.data)
        self._news.set()

    def put_list(self, told: ServerSentEvent) -> None:
        """In the place of an earlier one that nobody took."""
        self._list = told
        self._news.set()

    async def take(self) -> list[ServerSentEvent]:
        """All that is in it, once there is something; events in a row are one."""
        await self._news.wait()
        taken = [*_in_batches(self._items), *([self._list] if self._list else [])]
        self.clear()
        return taken

    def clear(self) -> None:
        self._items, self._chars, self._list = [], 0, None
        self._news.clear()
        self._room.set()


def _in_batches(items: list[ServerSentEvent]) -> list[ServerSentEvent]:
    batches: list[ServerSentEvent] = []
    events: list[ServerSentEvent] = []
    for item in [*items, None]:
        if item is not None and not item.name:
            events.append(item)
            continue
        if events:
            batches.append(ServerSentEvent("", f"[{','.join(event.data for event in events)}]", events[-1].id))
            events = []
        if item is not None:
            batches.append(item)
    return batches
