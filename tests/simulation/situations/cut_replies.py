"""Replies that are cut short while people see them."""

from __future__ import annotations

from typing import Any

from tests.simulation.situations.situation import CALM, SHORT, Habits, Situation

_SLOW: dict[str, tuple[Any, ...]] = {
    **CALM,
    "agent": ("clerk", "guarded"),
    "words": (0.5, 1.5),
    "calls": (0.4,),
    "look_seconds": (0.5, 2.0),
    "impatience": (0.4,),
    "coincidences": (0.0, 0.1),
    "messages": (3, 4),
    "prefix_bytes": (0, 10_000_000),
    "keep_open": (20.0, 3_600.0),
}
_CUTS = ("cancel_turn", "cancel by signal", "cancel and go on", "cancel and go on", "say", "pause", "resume")
_AMID = ("cancel_turn", "cancel_turn", "message", "pause", "close", "pause and close")

CUT_SHORT: dict[str, Situation] = {
    "cut short": Situation(
        {**_SLOW, "trouble": (0.0, 0.3), "bounds": ((), *SHORT), "revivals": (0, 1), "forks": (0, 0, 1)},
        tools=("look", "note", "refund"),
        failures=("unavailable", "rate", "connection"),
        habits=Habits(unasked=_CUTS),
        at_once=_AMID,
    ),
    "cut short by nobody who is there": Situation(
        {**_SLOW, "kills": (4.0, 10.0), "workers": (1, 2), "bounds": ((), *SHORT), "trouble": (0.0, 0.2)},
        tools=("look", "note"),
        failures=("unavailable", "rate"),
        habits=Habits(unasked=_CUTS),
        at_once=_AMID,
    ),
}
"""Its model takes its time for each word, and people interrupt it."""
