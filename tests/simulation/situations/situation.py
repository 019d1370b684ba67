"""What wild worlds are about: by chance alone, a conversation hardly ever comes to where most bugs of before were.

Each situation says what its worlds are like, what the model does in them and what people do; the rest is drawn. A world
of a wild seed is in the situation that its seed says, one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Habits:
    """What people do, each as often as it stands here."""

    decisions: tuple[str, ...] = ("approve",) * 6 + (
        "edit",
        "misedit",
        "deny",
        "answer",
        "signal",
        "both",
        "every",
        "twice",
    )
    """About a call that waits for an approval."""
    held: tuple[str, ...] = ("resume",)
    """With a conversation that is stalled or paused."""
    unasked: tuple[str, ...] = (
        "pause",
        "resume",
        "junk",
        "say",
        "junk",
        "cancel_turn",
        "say",
        "burst",
        "close",
        "cancel",
    )
    """While nobody asks for anything, or in place of what is asked."""


USUAL = Habits()


@dataclass(frozen=True)
class Situation:
    draw: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    """What its worlds are like: of each, one of these."""
    tools: tuple[str, ...] = ()
    """What the model calls; empty: anything."""
    failures: tuple[str, ...] = ()
    """How the model fails; empty: in any way."""
    habits: Habits = USUAL
    at_once: tuple[str, ...] = ()
    """What comes together with what the server brings; empty: anything of coincidences.py."""
    as_runs_begin: bool = False
    """It comes only before a run has done anything."""


CALM: dict[str, tuple[Any, ...]] = {
    "kills": (0.0,),
    "deploys": (False,),
    "retention": (0.0,),
    "forks": (0,),
    "revivals": (0,),
    "resets": (0.0,),
    "limits": ((),),
    "bounds": ((),),
    "busy": (False, False, True),
    "trouble": (0.0, 0.1),
    "calls": (0.8,),
    "coincidences": (0.0, 0.2),
    "keep_open": (20.0, 3_600.0),
    "messages": (2, 3),
    "look_seconds": (0.5, 3.0),
    "impatience": (0.1, 0.3),
}
"""One thing at a time is found sooner."""
SHORT: tuple[Any, ...] = ((("events", 25),), (("updates", 3),), (("events", 40), ("updates", 3)))

ALONE: dict[str, tuple[Any, ...]] = {
    **CALM,
    "agent": ("clerk",),
    "trouble": (0.0,),
    "coincidences": (0.0,),
    "busy": (False,),
}
"""Nothing goes wrong but what the world is about."""
