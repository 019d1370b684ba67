"""Rules about calls that no worker runs: a client does, and people say beforehand whether it may."""

from __future__ import annotations

from tests.simulation.situations.situation import ALONE, SHORT, Habits, Situation

RULED_OUTSIDE: dict[str, Situation] = {
    "rules about what a client runs": Situation(
        {
            **ALONE,
            "agent": ("clerk", "trusting"),
            "bounds": ((), *SHORT),
            "impatience": (0.3,),
            "look_seconds": (0.3, 1.0),
            "messages": (3, 4),
            "turns": (8.0,),
            "revivals": (0, 0, 1),
        },
        tools=("outside", "outside", "outside", "refund", "note"),
        habits=Habits(
            ("approve", "answer", "answer", "deny", "edit", "wait"),
            unasked=("policy for clients", "policy for clients", "say"),
        ),
    ),
}
