"""What a stranger's mistakes needed to be noticed, and no other world came to."""

from __future__ import annotations

from tests.simulation.situations.situation import ALONE, Habits, Situation

DOUBTS_LAST: dict[str, Situation] = {
    "doubts that wait for long": Situation(
        {
            **ALONE,
            "agent": ("trusting",),
            "kills": (0.0, 2.0, 4.0),
            "look_seconds": (20.0, 60.0),
            "keep_open": (None, 3_600.0),
            "impatience": (0.0,),
            "bounds": ((), (), (("events", 25),)),
        },
        tools=("ship", "ship", "refund"),
        habits=Habits(("wait", "wait", "approve", "deny", "answer"), unasked=("say",)),
    ),
}
"""People take longer than the clock, which approves in their place."""
