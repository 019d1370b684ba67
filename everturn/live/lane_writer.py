"""Writes a reply onto the lane beside Temporal while the model writes it.

Each write takes what has come since the last one. It waits for no timer, and never holds up the turn.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from temporalio import activity

from everturn.heartbeats.details import LiveAt, Piece, StreamedText, chars_of
from everturn.live.followers import Followers
from everturn.live.lane import Lane, LaneDown, TurnKey
from everturn.logs import get_logger
from everturn.payloads import ModelRequest
from everturn.records import TextKind

RETRY_SECONDS: Final = 1.0
"""How soon a write comes after one that failed. It takes what came meanwhile, up to MAX_UNWRITTEN_CHARS."""

MAX_UNWRITTEN_CHARS: Final = 200_000
"""What waits while the lane is down. If it becomes more, it is dropped: readers wait for the reply, then."""

_log = get_logger("everturn.live")

_writing: set[asyncio.Task[None]] = set()
"""Keeps the tasks alive: the event loop holds them weakly."""


def lane_writer_for(lane: Lane, request: ModelRequest) -> LaneWriter:
    """Writes the text of the try that runs here."""
    info = activity.info()
    key = TurnKey(info.namespace, info.workflow_run_id or "", info.activity_id)
    return LaneWriter(lane, key, turn=request.turn, attempt=info.attempt, announced=request.live_at)


class LaneWriter:
    """Writes the text of one try of a turn."""

    def __init__(self, lane: Lane, key: TurnKey, *, turn: int, attempt: int, announced: LiveAt | None = None) -> None:
        self._lane = lane
        self._key = key
        self._turn = turn
        self._attempt = attempt
        self._announced = announced
        self.followers = Followers(lane, key)
        self._new: list[Piece] = []
        self._at = 0
        """How many characters were written."""
        self._pump: asyncio.Task[None] | None = None
        self._ended = False

    def begin(self) -> LiveAt | None:
        """Where the text can be had; None if that is still where the request says. `end` has to follow."""
        return self._lane.begin_try(self._key, self._attempt, self._announced)

    def take_text(self, kind: TextKind, text: str) -> None:
        """To be called on the loop."""
        self.followers.expect()
        self._new.append((kind, text))
        self._start_writing()

    def end(self) -> None:
        """Nothing more comes. What is on its way is written all the same."""
        self._ended = True
        self._start_writing()

    def _start_writing(self) -> None:
        if self._pump is None or self._pump.done():
            self._pump = asyncio.create_task(self._write_pieces())
            _writing.add(self._pump)
            self._pump.add_done_callback(_writing.discard)

    async def _write_pieces(self) -> None:
        ended = False
        while self._new or (self._ended and not ended):
            pieces = self._new
            self._new = []
            try:
                if pieces:
                    await self._lane.write_text(self._key, self._as_streamed(pieces))
                    self._at += chars_of(pieces)
                else:
                    ended = True
                    await self._lane.end_try(self._key, self._attempt)
            except LaneDown as error:
                if self._ended:  # the reply is on its way through the history
                    with suppress(LaneDown):
                        await self._lane.end_try(self._key, self._attempt)
                    return
                _log.warning(
                    "live.unreachable", error=str(error), effect="until it works again, text comes with heartbeats"
                )
                self._new = pieces + self._new
                if chars_of(self._new) > MAX_UNWRITTEN_CHARS:
                    self._at += chars_of(self._new)  # a gap: whoever follows waits for the reply
                    self._new = []
                await asyncio.sleep(RETRY_SECONDS)

    def _as_streamed(self, pieces: list[Piece]) -> StreamedText:
        return StreamedText(turn=self._turn, attempt=self._attempt, every=0.0, at=self._at, pieces=tuple(pieces))
