"""What wild worlds are about for the sake of more bugs of before: lives, summaries, closing, questions, lost turns."""

from __future__ import annotations

from tests.simulation.more_situations import ALONE
from tests.simulation.situations import Habits, Situation

AIMED_REVIVED: dict[str, Situation] = {
    "a second life that outlives the first": Situation(
        {
            **ALONE,
            "retention": (900.0,),
            "bounds": ((("begun_with_bytes", 300),), (("begun_with_bytes", 300), ("packed_bytes", 300))),
            "prefix_bytes": (0,),
            "keep_open": (None,),
            "revivals": (1, 2),
            "messages": (1,),
            "look_seconds": (20.0,),
            "impatience": (0.7,),
        },
        tools=("refund", "look"),
        habits=Habits(("approve",), held=("resume", "close"), unasked=("rest",)),
    ),
    "summaries close together": Situation(
        {
            **ALONE,
            "agent": ("compact",),
            "messages": (4, 6),
            "keep_open": (3_600.0,),
            "prefix_bytes": (0, 10_000_000),
            "trouble": (0.3, 0.5),
        },
        tools=("look", "note"),
        failures=("window",),
        habits=Habits(unasked=("say",)),
    ),
    "closed twice": Situation(
        {**ALONE, "trouble": (0.4, 0.7), "keep_open": (None, 3_600.0), "messages": (1, 2)},
        tools=("look", "note"),
        failures=("key", "missing"),
        habits=Habits(held=("close twice", "close twice", "resume"), unasked=("pause", "resume", "say")),
    ),
    "questions after their calls": Situation(
        {
            **ALONE,
            "agent": ("plugged",),
            "labelled": (True,),
            "mcp_ponders": (6.0,),
            "keep_open": (3_600.0,),
            "messages": (16,),
            "calls": (0.95,),
            "look_seconds": (0.5, 1.5),
            "impatience": (0.5,),
        },
        tools=("stand_ask",),
        habits=Habits(unasked=("say", "cancel_turn")),
    ),
    "lost as it is cut short": Situation(
        {
            **ALONE,
            "words": (1.0, 1.5),
            "kills": (10.0, 20.0),
            "workers": (1,),
            "calls": (0.1,),
            "messages": (6,),
            "look_seconds": (1.0, 3.0),
            "impatience": (0.6,),
            "keep_open": (3_600.0,),
        },
        tools=("look",),
        habits=Habits(unasked=("cancel by signal",)),
    ),
}
