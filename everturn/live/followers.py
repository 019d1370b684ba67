"""Whether anybody follows a turn's text on its lane. If nobody does, the text comes by heartbeats, often."""

from __future__ import annotations

import time
from typing import Final

from everturn.live.lane import Lane, TurnKey

COME_SECONDS: Final = 1.0
"""How long clients have to come to the lane, if they can reach it."""


class Followers:
    """Those who follow the text of one try of a turn on the lane."""

    def __init__(self, lane: Lane, key: TurnKey) -> None:
        self._lane = lane
        self._key = key
        self._first_text_at: float | None = None

    def expect(self) -> None:
        """To be called for each new text: with the first one, the time begins in which they are to come."""
        self._first_text_at = self._first_text_at or time.monotonic()

    @property
    def may_be_there(self) -> bool:
        """At first always true: clients are given time to come."""
        begun_at = self._first_text_at
        return begun_at is None or time.monotonic() - begun_at < COME_SECONDS or self._lane.is_followed(self._key)
