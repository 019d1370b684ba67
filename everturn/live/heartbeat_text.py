"""Puts a reply into the heartbeats of its turn while the model writes it.

None of this is in the history: Temporal keeps the details of the last heartbeat beside it, and clients ask for them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Self

from temporalio import activity

from everturn.heartbeats.details import MAX_EVERY_SECONDS, LiveAt, Piece, StreamedText, last_bytes
from everturn.heartbeats.heartbeat import INTERVAL_SECONDS, Heartbeat
from everturn.live.lane import Lane
from everturn.live.lane_writer import LaneWriter, lane_writer_for
from everturn.payloads import ModelRequest
from everturn.providers import Delta
from everturn.records import Usage
from everturn.sizes import MAX_STREAMED_BYTES, RECENT_BYTES


class HeartbeatText:
    """The text and thoughts of one attempt. `every`: seconds between two beats; the first comes at once. None if
    the ordinary beats are enough. Such a beat holds `recent_bytes`; every INTERVAL_SECONDS, one holds `max_bytes`, for
    clients that come late. `lane`: where the text goes beside the beats."""

    def __init__(
        self,
        beat: Heartbeat,
        *,
        attempt: int,
        turn: int = 0,
        cost: Callable[[Usage], float | None] = lambda _: 0.0,
        every: float | None,
        recent_bytes: int = RECENT_BYTES,
        max_bytes: int = MAX_STREAMED_BYTES,
        lane: LaneWriter | None = None,
    ) -> None:
        self._beat = beat
        self._lane = lane
        self._attempt = attempt
        self._turn = turn
        self._cost = cost
        self._usage: Callable[[], Usage] = Usage
        self._every = every
        self._recent_bytes = recent_bytes
        self._max_bytes = max_bytes
        self._new: list[Piece] = []
        self._pieces: list[Piece] = []
        self._at = 0
        """How many characters came before `_pieces`."""
        self._silent = True
        self._live_at: LiveAt | None = None
        """Where clients can follow the text live, as the next beats say."""
        self._whole_at = 0.0
        # If the loop is blocked, a beat comes from a thread.
        self._lock = threading.Lock()
        beat.speak = self.next_streamed
        beat.reply_so_far = self.whole_streamed

    def take_delta(self, delta: Delta) -> None:
        self._new.append((delta.kind, delta.text))
        if self._lane:
            self._lane.take_text(delta.kind, delta.text)
        if self._silent and self._live_at:
            self._beat.beat_within(0.0)
        elif (every := self._pace) is not None:
            self._beat.beat_within(0.0 if self._silent else every)
        self._silent = False

    def __enter__(self) -> Self:
        self._live_at = self._lane.begin() if self._lane else None
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing more comes."""
        if self._lane:
            self._lane.end()

    def counted_by(self, usage: Callable[[], Usage]) -> None:
        """`usage` says what the provider has counted so far. May be called from any thread."""
        self._usage = usage

    def next_streamed(self) -> StreamedText | None:
        """What the next beat says: what is recent, and now and then all that a beat can hold."""
        with self._lock:
            self._gather_pieces()
            if not self._pieces:
                return None
            if time.monotonic() - self._whole_at >= 0.9 * INTERVAL_SECONDS:
                self._whole_at = time.monotonic()
                return self._make_streamed(self._at, self._pieces)
            return self._make_streamed(*last_bytes(self._pieces, self._recent_bytes, self._at))

    def whole_streamed(self) -> StreamedText:
        """All that was said, or as much of its end as a beat can hold; without pieces if nothing was said."""
        with self._lock:
            self._gather_pieces()
            return self._make_streamed(self._at, self._pieces)

    def _make_streamed(self, position: int, pieces: Sequence[Piece]) -> StreamedText:
        every = self._pace
        if every is None:
            every = self._beat.interval
        usage = self._usage()
        return StreamedText(
            turn=self._turn,
            attempt=self._attempt,
            every=min(every, MAX_EVERY_SECONDS),
            at=position,
            pieces=tuple(pieces),
            usage=usage,
            cost_usd=self._cost(usage) if usage.total_tokens else 0.0,
            live_at=self._live_at,
        )

    @property
    def _pace(self) -> float | None:
        """Seconds between two beats; None if the ordinary beats are enough for now."""
        if self._lane and self._lane.followers.may_be_there:
            return None
        return self._every

    def _gather_pieces(self) -> None:
        count = len(self._new)
        for kind, pieces in groupby(self._new[:count], key=itemgetter(0)):
            text = "".join(text for _, text in pieces)
            if self._pieces and self._pieces[-1][0] == kind:
                text = self._pieces.pop()[1] + text
            self._pieces.append((kind, text))
        del self._new[:count]
        self._at, self._pieces = last_bytes(self._pieces, self._max_bytes, self._at)


@dataclass(frozen=True)
class TextStreaming:
    """How a worker's turns are followed, if somebody asked for it."""

    seconds: float | None
    """Between two beats; None if the text goes with the ordinary beats."""
    lane: Lane | None = None
    """Used before `seconds`: while somebody may follow on the lane, all others get ordinary beats only."""

    def begin_stream(
        self, beat: Heartbeat, request: ModelRequest, *, cost: Callable[[Usage], float | None]
    ) -> HeartbeatText:
        """The stream of the turn that runs here."""
        lane = lane_writer_for(self.lane, request) if self.lane and request.stream else None
        every = self.seconds if request.stream else None
        attempt = activity.info().attempt
        return HeartbeatText(beat, attempt=attempt, turn=request.turn, cost=cost, every=every, lane=lane)
