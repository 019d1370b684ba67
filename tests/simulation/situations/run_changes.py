"""New runs, long rests, and workers that lack something: made for bugs of before that hardly any other world meets."""

from __future__ import annotations

from dataclasses import replace

from tests.simulation.situations.situation import ALONE, SHORT, Habits, Situation

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

LATEST: dict[str, Situation] = {
    "stalls and rests": Situation(
        {**BUGS["long rests"].draw, "trouble": (0.3, 0.5), "revivals": (0,), "impatience": (0.2,)},
        tools=("look", "note", "long"),
        failures=("key", "missing"),
        habits=Habits(held=("rest", "rest", "resume"), unasked=("rest", "say")),
    ),
}
"""One more in a group moves all of its seeds: what comes next begins a group of its own."""
