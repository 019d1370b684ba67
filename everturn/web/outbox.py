"""What one page has still to be sent. It is bounded, so a browser that stops reading costs no memory.

No event is dropped: `put` waits until there is room, and meanwhile no more of the history is read. Of the list of
conversations, only the newest version is kept.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

MAX_QUEUED_CHARS: Final = 1_000_000
"""How many characters may wait. One event more is let in, however long it is."""


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """One server-sent event. An event of the conversation has no name; its id is its cursor."""

    name: str
    data: str
    id: str = ""


class Outbox:
    def __init__(self, *, max_chars: int = MAX_QUEUED_CHARS) -> None:
        self._max_chars = max_chars
        self._items: list[ServerSentEvent] = []
        self.chars = 0
        """How many characters wait to be sent."""
        self._list: ServerSentEvent | None = None
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    async def put(self, event: ServerSentEvent) -> None:
        """Waits for room, then puts it in after the earlier ones."""
        while self.chars >= self._max_chars:
            self._room.clear()
            await self._room.wait()
        self._items.append(event)
        self.chars += len(event.data)
        self._news.set()

    def put_list(self, event: ServerSentEvent) -> None:
        """Replaces an earlier version of the list that was not taken yet."""
        self._list = event
        self._news.set()

    async def take_all(self) -> list[ServerSentEvent]:
        """Waits until there is something, then takes it all. Conversation events in a row become one event."""
        await self._news.wait()
        events = _in_batches(self._items)
        if self._list:
            events.append(self._list)
        self.clear()
        return events

    def clear(self) -> None:
        self._items = []
        self.chars = 0
        self._list = None
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
