"""From what a turn took on the measured machine to what many of them need: the arithmetic of docs/scale.md.

It takes three things to be true, and the measured points say how far they are: a part's CPU grows with the turns alone;
a core is a core; what a turn writes does not depend on how many there are. `busy` leaves room for peaks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

DAY = 86_400
BUSY = 0.5
"""Of a core's time, on average: peaks are twice the average, or more."""
TRANSITIONS_A_SHARD = 10.0
"""State transitions a second that one shard takes with its lock held for some milliseconds each: a cautious figure."""


@dataclass(frozen=True)
class Turn:
    """What one costs."""

    cpu_ms: Mapping[str, float]
    """By part."""
    events: float
    history_bytes: float
    database_bytes: float
    """By which tables and indexes grow."""
    log_bytes: float
    """Written to the database's log, of which only the end is kept: what its disk has to write before each commit."""


@dataclass(frozen=True)
class Need:
    """Of a number of turns a second."""

    turns_a_second: float
    cores: Mapping[str, float]
    events_a_second: float
    history_gb_a_day: float
    database_gb_a_day: float
    log_mb_a_second: float
    shards: int


def need(turn: Turn, *, turns_a_second: float, busy: float = BUSY) -> Need:
    events = turns_a_second * turn.events
    return Need(
        turns_a_second,
        {part: turns_a_second * ms / 1000 / busy for part, ms in turn.cpu_ms.items()},
        events,
        turns_a_second * turn.history_bytes * DAY / 1e9,
        turns_a_second * turn.database_bytes * DAY / 1e9,
        turns_a_second * turn.log_bytes / 1e6,
        shards(events),
    )


def a_day(conversations: int, turns: float) -> float:
    """Turns a second of so many conversations a day."""
    return conversations * turns / DAY


def shards(events_a_second: float) -> int:
    """The next power of two. A turn's three or four transitions write some events each: this counts every event."""
    wanted, found = events_a_second / TRANSITIONS_A_SHARD, 1
    while found < wanted:
        found *= 2
    return found


def most(cpu_ms: float, *, cores: float) -> float:
    """Turns a second of so many cores that do nothing else: the model of the measured points."""
    return cores * 1000 / cpu_ms
