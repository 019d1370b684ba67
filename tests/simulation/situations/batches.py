"""Turns that wait for a provider's batches."""

from __future__ import annotations

from tests.simulation.agents.batches import BATCHED
from tests.simulation.situations.situation import CALM, SHORT, Habits, Situation

_BATCHED = {
    **CALM,
    "agent": (BATCHED,),
    "talks": (2, 3),
    "look_seconds": (20.0, 120.0),
    "impatience": (0.05, 0.2),
    "bounds": ((), *SHORT),
}

BATCHES: dict[str, Situation] = {
    "batches": Situation(
        {**_BATCHED, "kills": (0.0, 1.0, 4.0), "trouble": (0.0, 0.1, 0.3), "workers": (1, 2, 3)},
        tools=("look", "note", "peek"),
        habits=Habits(unasked=("say", "say", "cancel_turn", "close", "cancel", "pause", "resume")),
    ),
    "batches and resets": Situation(
        {**_BATCHED, "resets": (0.7,), "trouble": (0.0,), "workers": (1, 2)},
        tools=("look", "note"),
        habits=Habits(unasked=("say",)),
    ),
}
"""Several conversations, one collector."""
