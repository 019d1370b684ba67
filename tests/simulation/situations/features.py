"""Hooks, policies, questions, encryption, lists, handoffs, a server that is away, wrong clocks."""

from __future__ import annotations

from tests.simulation.situations.situation import CALM, SHORT, Habits, Situation

_TALK = Habits(unasked=("say",))

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

BELOW: dict[str, Situation] = {
    "decided at the parent": Situation(
        {
            **CALM,
            "below": (True,),
            "ids": ("of the turn", "few", ""),
            "agent": ("boss",),
            "kills": (0.0, 0.0, 2.0),
            "bounds": ((), *SHORT),
            "watched": (1.0, 0.4),
        },
        tools=("helper", "helper", "refund", "look"),
        failures=("unavailable",),
    ),
}
"""People know of the conversation that they began, and not of those that its agent asks."""
