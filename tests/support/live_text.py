"""What a watcher of text sees, and the lanes beside Temporal on which it comes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from everturn import events
from everturn.heartbeats.profiles import HeartbeatProfile

UNHEARD = HeartbeatProfile(name="thrifty", interval_seconds=600, timeout=timedelta(seconds=900))
"""In the place of `thrifty`, whose first heartbeat comes after 10 s, with the text: on a full machine, that is soon."""

STORY = "".join(f"word {number}, " for number in range(40))


async def text_until(told: Any, wanted: Callable[[str], bool], kinds: list[str] | None = None) -> str:
    """What a watcher has seen of the turn, once it is so; what a retry voids is none of it."""
    seen = ""
    async for event in told:
        if kinds is not None:
            kinds.append(event.kind)
        match event:
            case events.TextDelta(text=text):
                seen += text
            case events.TurnRetried() | events.TurnStarted():
                seen = ""
            case events.Replied():
                return seen
        if wanted(seen):
            return seen
    raise AssertionError(f"it ended with {seen!r}")
