"""Decisions and cancellations, stalls, doubts, resets, lives, runs: what happens to every conversation."""

from __future__ import annotations

from tests.simulation.situations.situation import CALM, SHORT, Habits, Situation

_CUTS = (
    "approve",
    "approve",
    "deny",
    "cancel and decide",
    "cancel and decide",
    "close and decide",
    "two people",
    "edit",
)

SITUATIONS: dict[str, Situation] = {
    "at once": Situation(
        {**CALM, "coincidences": (0.3, 0.8), "agent": ("clerk", "guarded")},
        habits=Habits(
            _CUTS, ("resume", "close", "cancel_turn"), ("cancel_turn", "say", "cancel both", "pause", "close")
        ),
    ),
    "calls beside one another": Situation(
        {**CALM, "coincidences": (0.4,), "agent": ("clerk", "guarded"), "impatience": (0.3,)},
        tools=("refund", "gift", "look", "note", "slow", "outside", "pay"),
        habits=Habits(_CUTS, ("resume",), ("cancel_turn", "cancel_turn", "cancel both", "close")),
    ),
    "stalls": Situation(
        {**CALM, "trouble": (0.6, 0.8), "bounds": ((), *SHORT), "messages": (1, 2), "agent": ("clerk", "falling")},
        failures=("key", "missing", "quota", "refused"),
        habits=Habits(
            held=("resume",) * 8
            + ("another model", "close", "close twice", "cancel_turn", "cancel_turn", "say", "say"),
            unasked=("pause", "pause", "resume", "resume by signal", "say", "cancel_turn"),
        ),
    ),
    "doubts": Situation(
        {**CALM, "kills": (0.0, 0.0, 4.0), "agent": ("guarded", "clerk", "watched"), "coincidences": (0.0, 0.4)},
        tools=("wire", "ship", "pay", "look"),
        habits=Habits(
            (
                "approve",
                "deny",
                "misedit",
                "misedit",
                "signal",
                "stranger",
                "stranger",
                "two people",
                "twice",
                "answer",
            ),
            unasked=("pause", "resume", "cancel_turn", "close", "say"),
        ),
    ),
    "resets": Situation(
        {
            **CALM,
            "resets": (0.7,),
            "impatience": (0.3, 0.5),
            "look_seconds": (0.3, 1.0),
            "waits": (0.0, 1.0),
            "agent": ("clerk", "guarded"),
            "trouble": (0.0, 0.3),
        },
        tools=("pay", "wire", "refund", "look", "peek", "note", "gift"),
        failures=("key", "missing", "unavailable"),
        habits=Habits(("approve", "approve", "signal", "deny", "twice", "reset"), unasked=("say", "pause", "resume")),
    ),
    "lives": Situation(
        {
            **CALM,
            "revivals": (1, 2),
            "bounds": ((), (("begun_with_bytes", 300),), (("packed_bytes", 300), ("events", 25))),
            "agent": ("clerk", "compact", "guarded", "abrupt"),
            "keep_open": (None, 20.0),
            "impatience": (0.3,),
            "waits": (0.5,),
        },
        tools=("refund", "look", "note", "slow", "gift"),
        habits=Habits(
            _CUTS,
            ("another model", "resume"),
            ("say", "say", "terminate", "terminate", "close", "pause", "cancel_turn"),
        ),
    ),
    "runs": Situation(
        {
            **CALM,
            "bounds": SHORT,
            "agent": ("clerk", "guarded", "hurried", "watched"),
            "coincidences": (0.0, 0.5),
            "messages": (3,),
            "trouble": (0.0, 0.2),
        },
        tools=("refund", "peep", "peek", "look", "outside", "gift", "note"),
        failures=("key", "missing"),
        habits=Habits(
            ("approve", "misedit", "misedit", "misedit", "stranger", "two people", "deny"),
            unasked=("say again", "say again", "say", "cancel_turn", "pause", "resume"),
        ),
    ),
    "expiry": Situation(
        {**CALM, "bounds": ((), (("events", 25),)), "agent": ("watched", "hurried"), "look_seconds": (3.0, 10.0)},
        tools=("refund", "outside", "gift"),
        habits=Habits(
            ("misedit", "misedit", "stranger", "stranger", "wait", "wait", "approve"), unasked=("close", "say")
        ),
    ),
    "compaction": Situation(
        {
            **CALM,
            "agent": ("compact",),
            "messages": (3, 4),
            "prefix_bytes": (0, 10_000_000),
            "trouble": (0.0, 0.3, 0.95),
            "bounds": ((), (("events", 40),)),
            "revivals": (0, 1),
        },
        tools=("long", "look", "peek", "note"),
        failures=("window", "window", "key", "unavailable"),
    ),
    "retention": Situation(
        {
            **CALM,
            "retention": (900.0, 2_000.0),
            "bounds": ((("events", 25), ("packed_bytes", 300)), (("events", 25), ("begun_with_bytes", 300))),
            "prefix_bytes": (0,),
            "cached": (0,),
            "keep_open": (7_200.0,),
            "messages": (4,),
            "look_seconds": (20.0,),
            "revivals": (0, 1),
            "impatience": (0.0,),
        },
        tools=("look", "note", "long"),
        habits=Habits(unasked=("say", "rest")),
    ),
    "limits": Situation(
        {**CALM, "agent": ("thrifty", "short", "abrupt", "counted"), "limits": ((), (("max_turns", 5),))},
        tools=("look", "note", "pay", "peek"),
    ),
    "workers away": Situation(
        {**CALM, "kills": (4.0,), "deploys": (False, True), "agent": ("clerk", "hurried"), "workers": (1,)},
        tools=("refund", "wire", "ship", "look"),
        habits=Habits(("noted", "noted", "approve", "close and decide"), unasked=("close", "cancel_turn", "say")),
    ),
    "readers": Situation(
        {
            **CALM,
            "waits": (1.0,),
            "impatience": (0.5,),
            "look_seconds": (0.3, 1.0),
            "messages": (4,),
            "busy": (True,),
            "trouble": (0.0, 0.3),
            "calls": (0.3,),
            "bounds": ((), (("remembered_ids", 3), ("events", 25)), (("events", 25),)),
        },
        failures=("key", "missing"),
        habits=Habits(held=("cancel_turn", "resume"), unasked=("say", "say", "say", "several", "cancel_turn")),
    ),
    "forks": Situation(
        {**CALM, "forks": (1,), "waits": (0.5,), "impatience": (0.3,), "keep_open": (None, 3_600.0)},
        habits=Habits(unasked=("say",)),
    ),
}
