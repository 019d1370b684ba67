"""A reply that stops in its middle until a test lets it go on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from typing import Any

from everturn.events import Event, TextDelta, ThinkingDelta
from everturn.testing import slow
from tests.support.waiting import WAIT_SECONDS

CHARS = 32
"""Of one event of the scripted model's streams."""
STORY = "Once upon a time, a workflow lived by its history. " * 20
HALF = STORY[: 10 * CHARS]


def half_told(go_on: threading.Event) -> Any:
    return slow(STORY, after=11, until=go_on)  # the first event says only who speaks


def joined(events: Sequence[Event], kind: type[TextDelta | ThinkingDelta] = TextDelta) -> str:
    return "".join(event.text for event in events if isinstance(event, kind))


async def until_told(events: AsyncIterator[Event], text: str) -> list[Event]:
    """The events up to the delta that completes this text."""
    seen: list[Event] = []
    async with asyncio.timeout(WAIT_SECONDS):
        async for event in events:
            seen.append(event)
            if joined(seen) == text:
                return seen
    raise AssertionError(f"it ended with {joined(seen)!r}")
