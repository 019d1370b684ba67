"""What a stranger's mistakes needed to be noticed, and no other world came to."""

from __future__ import annotations

from tests.simulation.situations.situation import ALONE, SHORT, Habits, Situation

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

CORRECTED: dict[str, Situation] = {
    "corrections through runs": Situation(
        {
            **ALONE,
            "agent": ("typed",),
            "bounds": SHORT,
            "calls": (0.5, 0.8),
            "turns": (6.0,),
            "messages": (4,),
            "keep_open": (3_600.0,),
            "impatience": (0.5,),
            "look_seconds": (0.5, 2.0),
        },
        tools=("look", "note", "peek"),
        habits=Habits(unasked=("say", "pause", "resume")),
    ),
}
"""A model's replies do not fit, and runs are short."""

PATIENT: dict[str, Situation] = {
    "told to wait": Situation(
        {**ALONE, "trouble": (0.5, 0.7), "kills": (0.0, 0.0, 2.0), "messages": (3,), "keep_open": (None, 20.0)},
        tools=("look", "note"),
        failures=("busy", "busy", "busy, a while", "rate", "unavailable"),
    ),
}
"""A model says when it may be asked again, several times in a row."""

REPEATED: dict[str, Situation] = {
    "ids that repeat": Situation(
        {
            **ALONE,
            "ids": ("of the turn", "few"),
            "agent": ("clerk", "clerk", "compact"),
            "resets": (0.0, 1.0),
            "forks": (0, 1),
            "revivals": (0, 0, 1),
            "kills": (0.0, 0.0, 2.0),
            "workers": (1, 2, 3),
            "trouble": (0.0, 0.3),
            "bounds": ((), *SHORT),
            "prefix_bytes": (10_000_000,),
            "impatience": (0.5,),
            "look_seconds": (0.5, 2.0),
            "messages": (3, 4),
            "keep_open": (None, 20.0),
        },
        tools=("long", "long", "look", "note"),
        failures=("unavailable", "window"),
        habits=Habits(unasked=("say", "say", "cancel_turn")),
    ),
    "results of before a reset": Situation(
        {
            **ALONE,
            "ids": ("of the turn",),
            "resets": (1.0,),
            "workers": (2, 3),
            "trouble": (0.5,),
            "prefix_bytes": (10_000_000,),
            "impatience": (0.6,),
            "look_seconds": (0.5, 1.5),
            "messages": (2, 3),
            "calls": (1.0,),
            "turns": (8.0,),
            "keep_open": (None, 20.0),
        },
        tools=("long",),
        failures=("unavailable",),
        habits=Habits(unasked=("say",)),
    ),
}
"""The model's calls have ids that other calls have, too: of another turn, of a fork, of before a reset."""

DEPLOYED: dict[str, Situation] = {
    "deployed with other limits": Situation(
        {
            **ALONE,
            "agent": ("short", "abrupt", "thrifty", "single"),
            "kills": (4.0, 8.0),
            "deploys": (True,),
            "workers": (1,),
            "messages": (3,),
            "turns": (8.0,),
            "bounds": ((), *SHORT),
            "keep_open": (None, 3_600.0),
        },
        tools=("slow", "look", "note", "pay"),
        habits=Habits(unasked=("say",)),
    ),
}
"""Another version of an agent has other limits, and a tool by another name."""

LARGE: dict[str, Situation] = {
    "near the limits": Situation(
        {
            **ALONE,
            "large": (True,),
            "kills": (0.0, 0.0, 2.0),
            "bounds": ((), *SHORT),
            "messages": (2, 3),
            "turns": (3.0,),
            "prefix_bytes": (0, 10_000_000),
            "impatience": (0.3,),
            "revivals": (0, 0, 1),
        },
        tools=("long", "long", "refund"),
        habits=Habits(("approve", "deny"), unasked=("say", "say", "pause", "resume")),
    ),
}
"""Inputs and results are about as large as a payload may be."""

CROWDED: dict[str, Situation] = {
    "a crowd": Situation(
        {
            **ALONE,
            "agent": ("clerk", "guarded"),
            "kills": (0.0, 0.0, 2.0),
            "workers": (1, 2),
            "bounds": ((), *SHORT),
            "impatience": (0.2,),
            "look_seconds": (1.0, 5.0),
            "messages": (2,),
            "waits": (0.2,),
        },
        tools=("refund", "look", "slow"),
        habits=Habits(("crowd", "crowd", "approve", "deny"), unasked=("crowd", "say", "pause", "resume")),
    ),
    "refused signals": Situation(
        {
            **ALONE,
            "agent": ("clerk", "guarded"),
            "bounds": ((), *SHORT),
            "coincidences": (0.0, 0.3),
            "impatience": (0.3,),
            "look_seconds": (0.5, 3.0),
            "waits": (1.0,),
        },
        tools=("refund", "gift", "outside", "look"),
        habits=Habits(("refused", "refused", "approve", "deny", "misedit"), unasked=("refused", "say", "close")),
    ),
}
"""More people at once than Temporal takes updates, and signals that are to change nothing."""

CORRECTED_AND_CUT: dict[str, Situation] = {
    "corrections that are cut short": Situation(
        {
            **ALONE,
            "agent": ("typed",),
            "busy": (True,),
            "calls": (0.2,),
            "turns": (6.0,),
            "messages": (5,),
            "keep_open": (3_600.0,),
            "impatience": (0.7,),
            "look_seconds": (0.3, 1.0),
        },
        tools=("look",),
        habits=Habits(unasked=("cancel_turn", "cancel by signal", "cancel and go on", "say")),
    ),
}
"""A model's replies do not fit, and people cut answers short while they are corrected."""

LIMITED: dict[str, Situation] = {
    "limits beside stalls": Situation(
        {
            **ALONE,
            "agent": ("short", "thrifty"),
            "trouble": (0.6,),
            "calls": (1.0,),
            "turns": (8.0,),
            "messages": (2, 3),
            "look_seconds": (0.5, 3.0),
        },
        tools=("look", "note", "pay"),
        failures=("key", "missing", "quota", "refused"),
        habits=Habits(unasked=("say", "pause", "resume")),
    ),
}
"""Turns stall and are asked again, and the limits are near."""
