"""What the words of people come to: of two on one call, of rules with conditions, of messages around a close; and those
who are told of calls that wait, or say when they want to be asked again."""

from __future__ import annotations

from tests.simulation.situations.situation import ALONE, SHORT, Habits, Situation

WORDED: dict[str, Situation] = {
    "two words on a call": Situation(
        {
            **ALONE,
            "coincidences": (0.3, 0.5),
            "bounds": ((), *SHORT),
            "impatience": (0.1,),
            "keep_open": (None, 20.0),
        },
        tools=("refund", "refund", "gift", "slow", "ship"),
        habits=Habits(("two words", "two words", "approve", "wait"), unasked=("say", "pause", "resume")),
        at_once=("two words",),
    ),
    "rules with conditions": Situation(
        {
            **ALONE,
            "agent": ("clerk", "trusting"),
            "bounds": ((), *SHORT),
            "impatience": (0.4,),
            "look_seconds": (0.3, 1.0),
            "messages": (3, 4),
            "turns": (8.0,),
            "forks": (0, 0, 1),
            "revivals": (0, 0, 1),
        },
        tools=("refund", "refund", "pay", "gift", "note"),
        habits=Habits(
            ("always, if", "always, if", "approve", "deny", "wait"),
            unasked=("policy with conditions", "policy with conditions", "say"),
        ),
    ),
    "said around a close": Situation(
        {
            **ALONE,
            "coincidences": (0.15, 0.3),
            "bounds": ((), *SHORT),
            "busy": (False, True),
            "keep_open": (None, 20.0, 3_600.0),
            "revivals": (0, 1),
        },
        tools=("refund", "look", "slow", "note", "helper"),
        habits=Habits(("approve", "deny", "wait"), unasked=("say", "close", "pause")),
        at_once=("close and say twice", "close and say", "message", "close twice"),
    ),
    "who is told of calls that wait": Situation(
        {
            **ALONE,
            "agent": ("clerk", "guarded", "trusting", "hurried", "asking"),
            "notified": (True,),
            "kills": (0.0, 0.0, 4.0),
            "bounds": ((), *SHORT),
            "coincidences": (0.0, 0.2),
            "impatience": (0.2,),
            "keep_open": (None, 20.0, 3_600.0),
        },
        tools=("refund", "pay", "gift", "outside", "wire", "ship", "borrow", "inquire"),
        habits=Habits(
            ("approve", "deny", "misedit", "stranger", "wait", "wait"),
            unasked=("say", "cancel_turn", "pause", "resume"),
        ),
    ),
    "tools that want to be tried again": Situation(
        {
            **ALONE,
            "agent": ("waiting",),
            "watched": (0.0,),
            "look_seconds": (2_000.0,),
            "waits": (0.0,),
            "kills": (0.0, 0.0, 0.0, 1.0),
            "bounds": ((), *SHORT),
            "keep_open": (None, 20.0),
        },
        tools=("tardy", "tardy", "flaky", "look"),
        habits=Habits(unasked=("say", "pause", "resume")),
    ),
}
