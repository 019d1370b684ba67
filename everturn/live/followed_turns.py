"""The turns that this process follows: each is read once, however many followers it has."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any

from everturn.heartbeats.details import LiveAt, StreamedText, chars_of
from everturn.live.lane import TurnKey


@dataclass(eq=False)
class Channel:
    """A turn that is followed."""

    live_at: LiveAt | None = None
    """The address where it is read, if the lane has addresses."""
    moved: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when `live_at` has changed."""
    silent: bool = False
    """Whether the lane can't reach it."""
    attempt: int = 0
    position: int = 0
    """How many characters of that try have arrived without a gap."""
    texts: list[StreamedText] = field(default_factory=list)
    more: asyncio.Event = field(default_factory=asyncio.Event)
    followers: int = 0
    reading: asyncio.Task[None] | None = None

    def add_text(self, streamed: StreamedText) -> None:
        if streamed.attempt > self.attempt:
            self.attempt = streamed.attempt
            self.position = 0
        if streamed.attempt == self.attempt and streamed.at <= self.position:
            self.position = max(self.position, streamed.at + chars_of(streamed.pieces))
        self.texts.append(streamed)
        self.more.set()
        self.more = asyncio.Event()


class Channels:
    def __init__(self, read: Callable[[TurnKey, Channel], Coroutine[Any, Any, None]]) -> None:
        """`read` passes all text of a turn to its channel's `add_text`, until it is cancelled."""
        self._read = read
        self._open: dict[TurnKey, Channel] = {}

    def find_channel(self, key: TurnKey) -> Channel | None:
        """None if nobody follows it."""
        return self._open.get(key)

    def hear_of(self, key: TurnKey, live_at: LiveAt) -> None:
        channel = self._open.get(key)
        if channel and channel.live_at != live_at:
            channel.live_at = live_at
            channel.moved.set()

    def __iter__(self) -> Iterator[TurnKey]:
        return iter(self._open)

    async def follow(self, key: TurnKey, live_at: LiveAt | None) -> AsyncGenerator[StreamedText]:
        channel = self._open.setdefault(key, Channel(live_at))
        channel.followers += 1
        try:
            channel.reading = channel.reading or asyncio.create_task(self._read(key, channel))
            place = 0
            while True:
                more = channel.more
                while place < len(channel.texts):
                    place += 1
                    yield channel.texts[place - 1]
                await more.wait()
        finally:
            channel.followers -= 1
            if not channel.followers:
                self._open.pop(key, None)
                if channel.reading:
                    channel.reading.cancel()
