"""The smallest world in which the same thing is broken: fewer workers, people, faults and turns."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tests.simulation.world import Draw, Result, run

PLAIN: dict[str, Any] = {
    "revivals": 0,
    "forks": 0,
    "resets": 0.0,
    "kills": 0.0,
    "workers": 1,
    "busy": False,
    "messages": 1,
    "impatience": 0.0,
    "trouble": 0.0,
    "cached": 1_000,
    "prefix_bytes": 10_000_000,
    "deploys": False,
    "waits": 0.0,
    "limits": (),
    "retention": 0.0,
    "bounds": (),
    "coincidences": 0.0,
    "keep_open": None,
    "agent": "clerk",
    "calls": 0.3,
    "turns": 1.5,
    "look_seconds": 3.0,
}
"""What a world is like in which nothing special happens, the loudest first."""

LESS: dict[str, int | float] = {"messages": 1, "calls": 0.05, "turns": 0.2}
"""Of these there is half as much, again and again, while that still breaks."""

MOST_TRIES = 150
"""Of plainer worlds: whoever waits for it wants to read it soon."""

OTHER_CHANCES = 40

IDS = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}")
FIELDS = re.compile(r"[{,] ?'([a-z' ]+)': \(")
"""Of a state, that differ."""


def shrunk(result: Result) -> Draw:
    """As plain a world as still breaks, in the same way."""
    best, size = result.draw, _size(result)
    wanted = _way(result)
    changed, tries = True, 0
    while changed and tries < MOST_TRIES:
        changed = False
        for draw in _plainer(best):
            tries += 1
            tried = run(result.seed, draw=draw)
            if any(_way_of(one) == wanted for one in tried.broken):
                best, changed = draw, True
                break
    for number in range(OTHER_CHANCES):
        draw = replace(best, seed=result.seed * 1_000 + number)
        tried = run(draw.seed, draw=draw)
        if any(_way_of(one) == wanted for one in tried.broken) and _size(tried) < size:
            best, size = draw, _size(tried)
    return best


def _plainer(draw: Draw) -> Iterator[Draw]:
    for name, value in PLAIN.items():
        if getattr(draw, name) != value:
            yield replace(draw, **{name: value})
    for name, least in LESS.items():  # there may be less than what is usual
        if getattr(draw, name) / 2 >= least:
            yield replace(draw, **{name: type(least)(getattr(draw, name) / 2)})
    for bound in draw.bounds:
        yield replace(draw, bounds=tuple(other for other in draw.bounds if other != bound))


def _size(result: Result) -> int:
    return result.counts.get("commands", 0) + result.counts.get("workflow tasks", 0)


def _way(result: Result) -> str:
    return _way_of(result.broken[0])


def _way_of(broken: str) -> str:
    """What is wrong, without the names and numbers that differ from world to world."""
    words = IDS.sub("", broken.partition(": ")[2] or broken)
    fields = FIELDS.findall(words)
    return "".join(letter for letter in words if not letter.isdigit())[:40] + " ".join(fields)
