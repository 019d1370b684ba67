"""What a turn is asked with, what it begins with, and who runs its calls."""

from __future__ import annotations

from tests.simulation.situations.situation import CALM, SHORT, Habits, Situation

_TALK = Habits(unasked=("say", "say", "cancel_turn", "pause", "resume"))

TURNS: dict[str, Situation] = {
    "decided at run time": Situation(
        {
            **CALM,
            "agent": ("told",),
            "stored": (False, True),
            "labelled": (True,),
            "kills": (0.0, 0.0, 2.0),
            "bounds": ((), *SHORT),
            "revivals": (0, 1),
            "forks": (0, 1),
            "prefix_bytes": (0, 10_000_000),
        },
        tools=("look", "extra", "extra", "note", "refund"),
        failures=("key", "unavailable"),
        habits=_TALK,
    ),
    "forced calls": Situation(
        {
            **CALM,
            "agent": ("forced",),
            "kills": (0.0, 2.0),
            "bounds": ((), *SHORT),
            "messages": (3,),
            "calls": (0.2,),
            "revivals": (0, 1),
        },
        tools=("look", "note", "peek", "refund"),
        failures=("key", "unavailable"),
        habits=_TALK,
    ),
    "a provider's own tools": Situation(
        {
            **CALM,
            "agent": ("shell",),
            "kills": (0.0, 0.0, 2.0),
            "bounds": ((), *SHORT),
            "revivals": (0, 1),
        },
        tools=("shell", "shell", "computer", "look"),
        failures=("key", "unavailable"),
        habits=Habits(("approve", "answer", "answer", "deny", "signal", "twice"), unasked=("say", "cancel_turn")),
    ),
    "in the background": Situation(
        {**CALM, "agent": ("shell",), "kills": (2.0, 6.0), "calls": (0.3,), "cached": (0, 1_000)},
        tools=("shell", "look"),
        failures=("key", "unavailable", "rate"),
        habits=_TALK,
    ),
    "a transcript to begin with": Situation(
        {
            **CALM,
            "earlier": (True,),
            "agent": ("clerk", "guarded", "boss"),
            "kills": (0.0, 2.0),
            "bounds": ((), *SHORT),
            "prefix_bytes": (0, 10_000_000),
            "revivals": (0, 1),
            "forks": (0, 1),
        },
        tools=("look", "note", "refund", "helper", "long"),
        failures=("key", "unavailable"),
        habits=_TALK,
    ),
}
