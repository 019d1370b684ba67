"""What wild worlds are about from 7,000,000 on: moments that a bug of before needs, and that other worlds hardly reach.

These worlds draw by name, as those below WILD do.
"""

from __future__ import annotations

from tests.simulation.more_situations import ALONE
from tests.simulation.situations import Habits, Situation

AIMED: dict[str, Situation] = {
    "waits that last": Situation(
        {
            **ALONE,
            "agent": ("clerk", "guarded"),
            "bounds": ((("updates", 3),), (("events", 25),), (("updates", 3), ("events", 40))),
            "impatience": (0.6,),
            "look_seconds": (0.5,),
            "messages": (1,),
        },
        tools=("refund", "outside", "refund", "look"),
        habits=Habits(
            ("misedit", "misedit", "wait", "wait", "wait", "wait", "stranger", "approve"),
            unasked=("pause", "resume", "resume"),
        ),
    ),
    "an end amid results": Situation(
        {
            **ALONE,
            "agent": ("clerk", "guarded"),
            "revivals": (1, 2),
            "keep_open": (None, 20.0),
            "impatience": (0.3,),
        },
        tools=("look", "note", "refund", "outside", "slow"),
        habits=Habits(("wait", "wait", "approve"), unasked=("terminate",)),
    ),
    "said as it closes": Situation(
        {**ALONE, "coincidences": (0.2, 0.4), "agent": ("clerk", "guarded"), "keep_open": (20.0, 3_600.0)},
        tools=("look", "note", "slow", "refund"),
        habits=Habits(unasked=("say",)),
        at_once=("close and say", "message", "decide"),
    ),
    "asked again before it expires": Situation(
        {
            **ALONE,
            "agent": ("hurried", "trusting", "watched"),
            "bounds": ((), (("events", 25),), (("updates", 3),)),
            "look_seconds": (5.0, 12.0),
            "messages": (3,),
        },
        tools=("refund", "gift", "outside"),
        habits=Habits(("misedit", "misedit", "stranger", "wait"), unasked=("say",)),
    ),
    "decided while nobody works": Situation(
        {
            **ALONE,
            "kills": (4.0, 8.0),
            "away": (30.0, 90.0),
            "workers": (1,),
            "cached": (1_000,),
            "look_seconds": (1.0, 3.0),
            "keep_open": (3_600.0,),
        },
        tools=("refund", "ship"),
        habits=Habits(("noted",), unasked=("say", "pause", "resume")),
    ),
    "watched through a reset": Situation(
        {
            **ALONE,
            "resets": (1.0,),
            "impatience": (0.3, 0.5),
            "look_seconds": (0.3, 1.0),
            "waits": (1.0,),
            "keep_open": (None, 20.0, 3_600.0),
        },
        tools=("look", "note", "refund", "slow"),
        habits=Habits(("approve", "reset"), unasked=("say",)),
    ),
}
