"""Server-sent events, decoded from bytes.

httpx's own line iterators split at U+2028, U+0085 and their like, which JSON strings may hold as they are.
Here lines end at CRLF, LF or CR only, as the HTML standard (9.2.6) says, and the bytes may be cut anywhere.

What went wrong in mid-stream comes in two forms that the standard passes over. llama.cpp wrote it into a field called
`error` until September 2025 (its pull request 16109): here that is an event of this name, as `event: error` is.
Lemonade (11.5.0, its issue 2826) puts an object into the stream as it is, without a field: an event, too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from everturn.errors import InvalidReply

MAX_EVENT_BYTES = 16 * 1024 * 1024

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Event:
    """One event: its `data` lines joined by newlines, and its name if it has one."""

    data: str
    name: str = ""


@dataclass(slots=True)
class EventDecoder:
    """Bytes in, events out. A line, or the data of one event, over `max_event_bytes` raises InvalidReply."""

    max_event_bytes: int = MAX_EVENT_BYTES

    _rest: bytearray = field(default_factory=bytearray)
    """The bytes of the line that has not ended yet."""
    _searched: int = 0
    """How much of `_rest` is known to hold no line end."""
    _data: list[str] = field(default_factory=list)
    _data_bytes: int = 0
    _name: str = ""
    _started: bool = False

    def feed(self, data: bytes) -> list[Event]:
        """The events that `data` completes."""
        self._rest += data
        if not self._started and not self._drop_bom():
            return []
        lines = self._take_lines()
        if len(self._rest) > self.max_event_bytes:
            raise self._too_long()
        return [event for line in lines if (event := self._read_line(line))]

    def end(self) -> list[Event]:
        """The last event, if the stream stopped without the empty line after it."""
        lines = [bytes(self._rest).removesuffix(b"\r"), b""]
        self._rest.clear()
        self._searched = 0
        return [event for line in lines if (event := self._read_line(line))]

    def _drop_bom(self) -> bool:
        """Whether enough bytes are here to know that there is no byte order mark, or to have dropped it."""
        if len(self._rest) < len(_BOM) and _BOM.startswith(self._rest):
            return False
        if self._rest.startswith(_BOM):
            del self._rest[: len(_BOM)]
        self._started = True
        return True

    def _take_lines(self) -> list[bytes]:
        lines: list[bytes] = []
        if _LINE_END.search(self._rest, self._searched):
            lines = bytes(self._rest).splitlines()  # of bytes, at CRLF, LF and CR only
            # After a CR at the end, its LF may be in the next bytes: without them, that is not yet a line end.
            rest = b"" if self._rest.endswith(b"\n") else lines.pop() + b"\r" * self._rest.endswith(b"\r")
            self._rest[:] = rest
        self._searched = len(self._rest) - self._rest.endswith(b"\r")
        return lines

    def _read_line(self, line: bytes) -> Event | None:
        if not line:
            return self._dispatch_event()
        if line.startswith(b"{") and not self._data:
            return Event(line.decode("utf-8", "replace"), self._name)
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name in {b"data", b"error"}:
            if name == b"error":
                self._name = "error"
            self._data_bytes += len(value)
            if self._data_bytes > self.max_event_bytes:
                raise self._too_long()
            self._data.append(value.decode("utf-8", "replace"))
        elif name == b"event":
            self._name = value.decode("utf-8", "replace")
        return None  # comments (an empty name), id, retry and unknown fields say nothing to us

    def _dispatch_event(self) -> Event | None:
        event: Event | None = None
        if self._data:
            event = Event("\n".join(self._data), self._name)
        self._data.clear()
        self._data_bytes = 0
        self._name = ""
        return event

    def _too_long(self) -> InvalidReply:
        return InvalidReply(f"The stream holds an event of more than {self.max_event_bytes} bytes.")
