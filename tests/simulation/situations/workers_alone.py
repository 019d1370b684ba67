"""What a worker does by itself, beside what the server has it do: local tools, journals."""

from __future__ import annotations

from tests.simulation.situations.situation import CALM, SHORT, Habits, Situation

_TALK = Habits(
    ("approve", "approve", "deny", "misedit", "cancel and decide"),
    unasked=("say", "say", "cancel_turn", "pause", "resume", "close"),
)

LOCALS: dict[str, Situation] = {
    "long local tools": Situation(
        {
            **CALM,
            "clocks_locals": (True,),
            "agent": ("near",),
            "kills": (0.0, 0.0, 3.0),
            "bounds": ((), *SHORT),
            "cached": (0, 1, 1_000),
            "impatience": (0.3, 0.6),
            "waits": (0.0, 0.5),
            "trouble": (0.0,),
            "messages": (3,),
        },
        tools=("linger", "waver", "refund"),
        habits=_TALK,
    ),
    "tools that were quick": Situation(
        {
            **CALM,
            "clocks_locals": (True,),
            "agent": ("near",),
            "kills": (0.0, 0.0, 3.0),
            "bounds": ((), *SHORT),
            "messages": (4, 6),
            "turns": (8.0,),
            "calls": (1.0,),
            "keep_open": (3_600.0,),
            "trouble": (0.0,),
        },
        tools=("glance",),
        habits=_TALK,
    ),
}
"""Local tools have the SDK's time-outs and delays, and hold their workflow tasks for as long as they take."""

JOURNALS: dict[str, Situation] = {
    "one machine": Situation(
        {
            **CALM,
            "machine": (True,),
            "workers": (2, 3),
            "kills": (4.0, 8.0),
            "agent": ("clerk", "guarded", "hurried"),
            "bounds": ((), *SHORT),
            "cached": (0, 1, 1_000),
            "messages": (3,),
            "impatience": (0.3,),
        },
        tools=("look", "note", "refund", "pay", "wire", "ship", "slow"),
        failures=("key", "unavailable"),
        habits=_TALK,
    ),
}
"""Workers are killed, and others of the same machine see it by their journals."""
