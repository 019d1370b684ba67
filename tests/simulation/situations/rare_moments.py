"""Moments that a bug of before needs, and that other worlds hardly reach."""

from __future__ import annotations

from tests.simulation.situations.situation import ALONE, Habits, Situation

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
