"""The text of a running turn, which its worker keeps once for all readers.

A reader has a place in the text, and no copy of it. All but the latest pieces are joined into one. So a long reply
takes little more memory than its text, and a reader that comes late is sent few pieces.
"""

from __future__ import annotations

from base64 import b64encode
from itertools import groupby
from operator import itemgetter
from typing import Final

from temporalio.converter import DataConverter

from everturn.heartbeats.details import Piece, StreamedText, chars_of, last_chars
from everturn.live.lane import encode_text

MOST_RECENT_PIECES: Final = 512
MOST_RECENT_BYTES: Final = 1_000_000
"""The most bytes of separate pieces, as they are sent."""

MOST_CHARS: Final = 200_000
"""The most characters of a turn. Longer turns lose their beginnings; a late reader then waits for the reply."""

CHUNK_BYTES: Final = 64 * 1024
"""How much one reader is sent at a time."""

END: Final = b"event: end\ndata: .\n\n"


class TurnText:
    """The text of one try."""

    def __init__(self, converter: DataConverter, attempt: int) -> None:
        self._converter = converter
        self.attempt = attempt
        self.ended = False
        self._head = b""
        """Everything before `_recent`, joined, as it is sent."""
        self._head_pieces: list[Piece] = []
        self._head_at = 0
        """How many characters before `_head` are lost."""
        self._recent: list[tuple[StreamedText, bytes]] = []
        self._bytes = 0
        """The size of `_recent`."""
        self._first = 0
        """The number of the first of `_recent`, counted from the beginning of the turn."""

    async def add_text(self, streamed: StreamedText) -> None:
        frame = await self._make_frame(streamed)
        self._recent.append((streamed, frame))
        self._bytes += len(frame)
        if len(self._recent) > MOST_RECENT_PIECES:
            await self._join_earlier(keep=MOST_RECENT_PIECES // 2)
        elif self._bytes > MOST_RECENT_BYTES:
            await self._join_earlier(keep=0)

    def place_after(self, attempt: int, chars: int) -> int:
        """The place where a reader goes on that has `chars` characters of that try."""
        if attempt != self.attempt:
            return 0
        later = (
            number
            for number, (streamed, _) in enumerate(self._recent, self._first)
            if streamed.at <= chars < streamed.at + chars_of(streamed.pieces)
        )
        end = self._head_at + chars_of(self._head_pieces)
        return next(later, 0 if chars < end else self._first + len(self._recent))

    def text_after(self, place: int) -> tuple[bytes, int]:
        """The text from `place` on, up to CHUNK_BYTES but at least one piece; and the place after it."""
        frames: list[bytes] = []
        if place < self._first:
            frames = [self._head]
            place = self._first
        size = sum(map(len, frames))
        for _, frame in self._recent[place - self._first :]:
            if frames and size + len(frame) > CHUNK_BYTES:
                break
            frames.append(frame)
            size += len(frame)
            place += 1
        return b"".join(frames), place

    def is_whole_at(self, place: int) -> bool:
        return place >= self._first + len(self._recent)

    async def _join_earlier(self, *, keep: int) -> None:
        """Joins all but the last `keep` pieces. Nothing is added meanwhile: only one task writes a try's text."""
        count = len(self._recent) - keep
        pieces = [*self._head_pieces, *(piece for streamed, _ in self._recent[:count] for piece in streamed.pieces)]
        joined: list[Piece] = [
            (kind, "".join(text for _, text in same)) for kind, same in groupby(pieces, key=itemgetter(0))
        ]
        last, _ = self._recent[count - 1]
        start = last.at + chars_of(last.pieces) - chars_of(joined)
        position, kept = last_chars(joined, MOST_CHARS, max(0, start))
        head = await self._make_frame(last.model_copy(update={"at": position, "pieces": tuple(kept)}))
        # Without an await in between: readers see either the old state or the new one.
        self._head = head
        self._head_pieces = kept
        self._head_at = position
        del self._recent[:count]
        self._bytes = sum(len(frame) for _, frame in self._recent)
        self._first += count

    async def _make_frame(self, streamed: StreamedText) -> bytes:
        return b"data: " + b64encode(await encode_text(self._converter, streamed)) + b"\n\n"
