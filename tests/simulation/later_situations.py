"""What wild worlds are about in a later million: moments of bugs of before that all other worlds hardly reach.

These worlds draw by name, as those below WILD do.
"""

from __future__ import annotations

from tests.simulation.more_situations import ALONE
from tests.simulation.situations import Habits, Situation

AIMED_LATER: dict[str, Situation] = {
    "strangers decide on doubts": Situation(
        {**ALONE, "agent": ("guarded",), "look_seconds": (0.5, 3.0), "keep_open": (None, 20.0)},
        tools=("wire", "ship", "wire"),
        habits=Habits(("stranger", "stranger", "approve", "deny"), unasked=("say",)),
    ),
    "cancelled beside results": Situation(
        {
            **ALONE,
            "coincidences": (0.5, 0.8),
            "keep_open": (3_600.0,),
            "messages": (3,),
            "look_seconds": (3.0,),
        },
        tools=("look", "note", "slow", "peek"),
        habits=Habits(unasked=("say",)),
        at_once=("cancel_turn",),
    ),
    "reset while a payment runs": Situation(
        {
            **ALONE,
            "resets": (1.0,),
            "impatience": (0.7,),
            "look_seconds": (0.5, 2.0),
            "keep_open": (None, 20.0),
            "messages": (1, 2),
            "cached": (0, 1_000),
        },
        tools=("pay",),
        habits=Habits(("approve", "deny"), unasked=("say",)),
    ),
    "resumed again and again": Situation(
        {
            **ALONE,
            "trouble": (1.0,),
            "bounds": ((("updates", 3),), (("events", 25),)),
            "look_seconds": (0.5, 3.0),
            "messages": (1,),
            "impatience": (0.0,),
        },
        tools=("look",),
        failures=("key", "missing", "quota", "refused"),
        habits=Habits(held=("resume",) * 40 + ("close",)),
    ),
}
