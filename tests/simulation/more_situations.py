"""More of what wild worlds are about, from NEWER on: those of situations.py keep the seeds that they have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.simulation.situations import CALM, SHORT, Habits, Situation

ALONE: dict[str, tuple[Any, ...]] = {
    **CALM,
    "agent": ("clerk",),
    "trouble": (0.0,),
    "coincidences": (0.0,),
    "busy": (False,),
}
"""Nothing goes wrong but what the world is about."""

_TALK = Habits(unasked=("say",))

BUGS: dict[str, Situation] = {
    "short runs": Situation(
        {**ALONE, "bounds": (*SHORT, (("events", 25), ("packed_bytes", 300))), "keep_open": (None, 3_600.0)},
        tools=("look", "note", "peek", "gift"),
        habits=_TALK,
    ),
    "as a run begins": Situation(
        {**ALONE, "bounds": ((("events", 25),),), "coincidences": (0.5,), "keep_open": (3_600.0,)},
        tools=("look", "note", "peek", "refund"),
        habits=_TALK,
        at_once=("cancel_turn", "cancel_turn", "message", "decide", "pause", "resume"),
        as_runs_begin=True,
    ),
    "as it stalls": Situation(
        {**ALONE, "trouble": (0.4, 0.7), "coincidences": (0.5,), "keep_open": (3_600.0,)},
        tools=("look", "note"),
        failures=("key", "missing", "quota"),
        habits=replace(_TALK, held=("resume", "resume", "say", "wait")),
        at_once=("resume", "resume", "resume", "message", "pause"),
    ),
    "long rests": Situation(
        {
            **ALONE,
            "retention": (900.0, 2_000.0),
            "bounds": ((("events", 25), ("packed_bytes", 300)), (("begun_with_bytes", 300), ("packed_bytes", 300))),
            "prefix_bytes": (0,),
            "cached": (0, 1_000),
            "keep_open": (7_200.0,),
            "messages": (4, 6),
            "look_seconds": (20.0,),
            "revivals": (0, 1),
            "impatience": (0.6,),
        },
        tools=("look", "note", "long"),
        habits=Habits(unasked=("rest", "rest", "rest", "say")),
    ),
    "nobody works": Situation(
        {**ALONE, "kills": (2.0, 6.0), "away": (20.0, 60.0), "workers": (1,), "cached": (1_000,)},
        tools=("refund", "wire", "ship", "look"),
        habits=Habits(("noted", "noted", "noted", "approve"), unasked=("say", "pause", "resume", "cancel_turn")),
    ),
    "tools gone": Situation(
        {**ALONE, "agent": ("prepared",), "keep_open": (3_600.0,), "kills": (0.0, 2.0)},
        tools=("pay", "wire", "ship", "look"),
        habits=Habits(unasked=("say", "pause", "resume")),
    ),
    "odd signals": Situation(
        {**ALONE, "impatience": (0.5,), "waits": (0.5,)}, habits=Habits(unasked=("junk", "junk", "say"))
    ),
    "much said": Situation(
        {
            **ALONE,
            "bounds": ((("remembered_ids", 3), ("events", 25)), (("remembered_ids", 3), ("events", 40))),
            "keep_open": (3_600.0,),
            "messages": (8,),
            "impatience": (0.4,),
            "calls": (0.3,),
            "waits": (1.0,),
            "look_seconds": (1.0, 10.0),
        },
        tools=("look", "note", "peek"),
        habits=Habits(unasked=("several", "several", "say")),
    ),
    "summaries": Situation(
        {
            **ALONE,
            "agent": ("compact",),
            "messages": (6,),
            "keep_open": (3_600.0,),
            "prefix_bytes": (0, 10_000_000),
            "bounds": ((), (("events", 40),), (("events", 25), ("packed_bytes", 300))),
            "trouble": (0.0, 0.1, 0.3),
            "revivals": (0, 1),
        },
        tools=("look", "peek", "note", "long"),
        failures=("window", "key"),
        habits=_TALK,
    ),
}
"""Made for bugs of before that hardly any other world meets."""

NEWS: dict[str, Situation] = {
    "hooks": Situation(
        {**CALM, "agent": ("hooked",), "kills": (0.0, 0.0, 2.0), "bounds": ((), *SHORT)},
        tools=("pay", "pay", "note", "look", "gift", "long", "refund", "peek"),
        failures=("key", "unavailable"),
    ),
    "policies": Situation(
        {**CALM, "agent": ("clerk", "guarded", "asking"), "bounds": ((), *SHORT), "impatience": (0.3, 0.6)},
        tools=("pay", "refund", "gift", "note", "look", "peek", "borrow"),
        failures=("key", "unavailable"),
        habits=Habits(
            ("approve", "always", "never", "never", "deny", "wait"),
            unasked=("policy", "policy", "policy", "policy by signal", "say", "cancel_turn", "pause", "resume"),
        ),
    ),
    "asks in the middle": Situation(
        {**CALM, "agent": ("asking",), "kills": (0.0, 0.0, 2.0), "bounds": ((), *SHORT)},
        tools=("borrow", "borrow", "inquire", "inquire", "look", "wire"),
        failures=("key", "unavailable"),
    ),
    "context": Situation(
        {
            **CALM,
            "labelled": (True,),
            "agent": ("clerk", "boss", "hooked"),
            "revivals": (0, 1),
            "forks": (0, 1),
            "bounds": ((), *SHORT),
            "kills": (0.0, 2.0),
        },
        tools=("look", "peek", "note", "helper", "refund"),
        failures=("key", "unavailable"),
        habits=_TALK,
    ),
    "sealed": Situation(
        {**CALM, "sealed": (True,), "agent": ("clerk", "guarded", "boss", "compact"), "bounds": ((), *SHORT)},
        failures=("key", "unavailable"),
    ),
    "lists": Situation(
        {**CALM, "lists": (True,), "agent": ("clerk", "guarded"), "revivals": (0, 1), "bounds": ((), *SHORT)},
        failures=("key", "unavailable"),
        habits=Habits(unasked=("list", "list", "list", "say", "pause", "close", "cancel_turn", "terminate")),
    ),
    "no server": Situation(
        {**CALM, "outages": (1.0, 4.0), "busy": (True,), "agent": ("clerk", "guarded"), "waits": (0.0, 1.0)},
        tools=("look", "note", "refund", "wire", "peek", "slow"),
        failures=("key", "unavailable"),
    ),
}
"""What everturn has learned since."""

MORE = {**BUGS, **NEWS}

LATEST: dict[str, Situation] = {
    "stalls and rests": Situation(
        {**MORE["long rests"].draw, "trouble": (0.3, 0.5), "revivals": (0,), "impatience": (0.2,)},
        tools=("look", "note", "long"),
        failures=("key", "missing"),
        habits=Habits(held=("rest", "rest", "resume"), unasked=("rest", "say")),
    ),
}
"""One more in a group moves all of its seeds: what comes next begins a group of its own."""

_CUT_IN = ("approve", "approve", "deny", "edit", "cancel and decide", "cancel and decide", "stranger", "two people")

HANDOFFS: dict[str, Situation] = {
    "handoffs": Situation(
        {
            **CALM,
            "agent": ("triage", "expert", "guard"),
            "kills": (0.0, 0.0, 2.0),
            "bounds": ((), *SHORT),
            "limits": ((), (), (("max_handoffs", 2),)),
            "coincidences": (0.0, 0.3),
            "revivals": (0, 0, 1),
            "forks": (0, 0, 1),
            "messages": (3, 4),
        },
        tools=("transfer_to_triage", "transfer_to_expert", "transfer_to_guard") * 2 + ("look", "note", "refund", "pay"),
        failures=("key", "unavailable"),
        habits=Habits(_CUT_IN, unasked=("say", "say", "cancel_turn", "pause", "resume", "policy")),
    ),
}
"""Agents hand their conversations on to each other."""

CLOCKS: dict[str, Situation] = {
    "wrong clocks": Situation(
        {
            **CALM,
            "clocks": (60.0, 600.0, 90_000.0),
            "workers": (2, 3),
            "agent": ("clerk", "guarded", "hurried"),
            "kills": (0.0, 2.0),
            "cached": (0, 1, 1_000),
            "bounds": ((), *SHORT),
            "trouble": (0.0, 0.3),
        },
        tools=("look", "note", "refund", "pay", "peek", "slow"),
        failures=("unavailable", "key"),
    ),
}
"""Workers are on machines whose clocks are minutes or a day off, each in its own way."""
