"""How much an MCP server may send, so that a worker's other conversations go on and its memory is bounded."""

from __future__ import annotations

import asyncio
import re
import time

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
"""One message: a line, a JSON body after decompression, an event of a stream. Results of some megabytes are in use:
they are cut, or kept as artifacts."""

MAX_MESSAGE_VALUES = 250_000
"""How many values one message may hold. A value takes 3 bytes of text, and some hundred of memory: 15 MB of `{},{},`
took 1.7 GB, and kept the event loop busy for ten seconds."""

MESSAGES_PER_SECOND = 500.0
MAX_BURST = 1_000
"""So many messages are taken at once, and then so many a second: those that come faster wait with the server. One costs
some tenths of a millisecond."""

BYTES_PER_SECOND = 32.0 * 1024 * 1024
MAX_BURST_BYTES = 64 * 1024 * 1024
"""The same for their bytes."""

ERROR_BYTES_PER_SECOND = 1024.0 * 1024
MAX_BURST_ERROR_BYTES = 4 * 1024 * 1024
"""The same for what a program writes on its standard error."""

PIECE_BYTES = 64 * 1024
"""Read at a time of what a program writes."""

MAX_LINES_AT_ONCE = 50
"""So many of the lines that come together are logged: the last ones."""

MAX_OPEN_REQUESTS = 100
"""Requests of the server, such as pings and questions, that have not been answered yet. One that does not read our
answers leaves them all open."""

MAX_SERVER_TOOLS = 1_000
MAX_PAGES = 100
MAX_LIST_BYTES = 4 * 1024 * 1024
"""All tools of one list. A model gets them in every turn."""

MAX_TOOL_BYTES = 100_000
"""One tool: its description and its schema."""

CURE = "Have it send less at a time, or in pages"

_TEXTS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_SIGNS = (b",", b"[", b"{")
"""Each value of a text, but the first, comes after one of these."""


class TooMuch(Exception):
    """A server sent more than it may. The message says what, and the limit."""


class Overflow:
    """What a server did that ended its connection, if it did."""

    def __init__(self) -> None:
        self.why = ""
        self.reported = asyncio.Event()

    def report(self, error: TooMuch) -> None:
        self.why = self.why or str(error)
        self.reported.set()


class Pace:
    """Lets a burst through, and then so much a second."""

    def __init__(self, per_second: float, burst: float) -> None:
        self._per_second = per_second
        self._burst = self._left = burst
        self._at = time.monotonic()

    async def wait_for(self, amount: float) -> None:
        """Returns at once, or waits until the time for what was taken before has passed."""
        now = time.monotonic()
        self._left = min(self._burst, self._left + (now - self._at) * self._per_second) - amount
        self._at = now
        if self._left < 0:
            await asyncio.sleep(-self._left / self._per_second)


def too_long() -> TooMuch:
    return TooMuch(f"it sent a message of more than {MAX_MESSAGE_BYTES:,} bytes, which is the limit. {CURE}")


def check_values(text: bytes | bytearray) -> None:
    """Raises TooMuch."""
    if len(text) > MAX_MESSAGE_VALUES < _count_signs(text) and _count_signs(_TEXTS.sub(b"", text)) > MAX_MESSAGE_VALUES:
        raise TooMuch(f"it sent a message of more than {MAX_MESSAGE_VALUES:,} JSON values, which is the limit. {CURE}")


def _count_signs(text: bytes | bytearray) -> int:
    return sum(map(text.count, _SIGNS))


def new_paces() -> tuple[Pace, Pace]:
    """For messages, and for bytes."""
    return Pace(MESSAGES_PER_SECOND, MAX_BURST), Pace(BYTES_PER_SECOND, MAX_BURST_BYTES)


def pace_of_errors() -> Pace:
    return Pace(ERROR_BYTES_PER_SECOND, MAX_BURST_ERROR_BYTES)
