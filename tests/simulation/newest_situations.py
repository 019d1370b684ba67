"""What wild worlds are about from 5,000,000 on: what a turn is asked with, what it begins with, who runs its calls.

From 10,000,000 on: tools of MCP servers. From 11,000,000 on: replies that are cut short while people see them."""

from __future__ import annotations

from typing import Any

from tests.simulation.mcp_agents import MCP_TOOLS
from tests.simulation.situations import CALM, SHORT, Habits, Situation

_TALK = Habits(unasked=("say", "say", "cancel_turn", "pause", "resume"))

TURNS: dict[str, Situation] = {
    "decided at run time": Situation(
        {
            **CALM,
            "agent": ("told",),
            "stored": (False, True),
            "labelled": (True,),
            "kills": (0.0, 0.0, 2.0),
            "bounds": ((), *SHORT),
            "revivals": (0, 1),
            "forks": (0, 1),
            "prefix_bytes": (0, 10_000_000),
        },
        tools=("look", "extra", "extra", "note", "refund"),
        failures=("key", "unavailable"),
        habits=_TALK,
    ),
    "forced calls": Situation(
        {
            **CALM,
            "agent": ("forced",),
            "kills": (0.0, 2.0),
            "bounds": ((), *SHORT),
            "messages": (3,),
            "calls": (0.2,),
            "revivals": (0, 1),
        },
        tools=("look", "note", "peek", "refund"),
        failures=("key", "unavailable"),
        habits=_TALK,
    ),
    "a provider's own tools": Situation(
        {
            **CALM,
            "agent": ("shell",),
            "kills": (0.0, 0.0, 2.0),
            "bounds": ((), *SHORT),
            "revivals": (0, 1),
        },
        tools=("shell", "shell", "computer", "look"),
        failures=("key", "unavailable"),
        habits=Habits(("approve", "answer", "answer", "deny", "signal", "twice"), unasked=("say", "cancel_turn")),
    ),
    "in the background": Situation(
        {**CALM, "agent": ("shell",), "kills": (2.0, 6.0), "calls": (0.3,), "cached": (0, 1_000)},
        tools=("shell", "look"),
        failures=("key", "unavailable", "rate"),
        habits=_TALK,
    ),
    "a transcript to begin with": Situation(
        {
            **CALM,
            "earlier": (True,),
            "agent": ("clerk", "guarded", "boss"),
            "kills": (0.0, 2.0),
            "bounds": ((), *SHORT),
            "prefix_bytes": (0, 10_000_000),
            "revivals": (0, 1),
            "forks": (0, 1),
        },
        tools=("look", "note", "refund", "helper", "long"),
        failures=("key", "unavailable"),
        habits=_TALK,
    ),
}

_SERVERS: dict[str, tuple[Any, ...]] = {
    **CALM,
    "agent": ("plugged",),
    "keep_open": (None, 20.0),
    "labelled": (True,),
    "bounds": ((), *SHORT),
    "mcp_trouble": (0.0, 0.1, 0.3),
    "mcp_changes": (0.0, 2.0, 8.0),
}

MCP: dict[str, Situation] = {
    "MCP servers": Situation(
        {**_SERVERS, "kills": (0.0, 0.0, 2.0), "revivals": (0, 1), "workers": (1, 2)},
        tools=MCP_TOOLS,
        failures=("key", "unavailable"),
        habits=_TALK,
    ),
    "MCP tasks": Situation(
        {**_SERVERS, "kills": (2.0, 6.0), "workers": (1, 2), "deploys": (False, False, True)},
        tools=tuple(name for name in MCP_TOOLS if name.endswith(("build", "ask"))),
        failures=("unavailable",),
        habits=_TALK,
    ),
    "MCP lists that change": Situation(
        {**_SERVERS, "mcp_trouble": (0.1, 0.4), "mcp_changes": (8.0, 20.0), "kills": (0.0, 0.0, 2.0), "forks": (0, 1)},
        tools=tuple(name for name in MCP_TOOLS if name.endswith(("odd", "mood", "sell", "put"))),
        failures=("unavailable",),
        habits=_TALK,
    ),
}
"""Each part of these worlds draws by its own name."""

_SLOW: dict[str, tuple[Any, ...]] = {
    **CALM,
    "agent": ("clerk", "guarded"),
    "words": (0.5, 1.5),
    "calls": (0.4,),
    "look_seconds": (0.5, 2.0),
    "impatience": (0.4,),
    "coincidences": (0.0, 0.1),
    "messages": (3, 4),
    "prefix_bytes": (0, 10_000_000),
    "keep_open": (20.0, 3_600.0),
}
_CUTS = ("cancel_turn", "cancel by signal", "cancel and go on", "cancel and go on", "say", "pause", "resume")
_AMID = ("cancel_turn", "cancel_turn", "message", "pause", "close", "pause and close")

CUT_SHORT: dict[str, Situation] = {
    "cut short": Situation(
        {**_SLOW, "trouble": (0.0, 0.3), "bounds": ((), *SHORT), "revivals": (0, 1), "forks": (0, 0, 1)},
        tools=("look", "note", "refund"),
        failures=("unavailable", "rate", "connection"),
        habits=Habits(unasked=_CUTS),
        at_once=_AMID,
    ),
    "cut short by nobody who is there": Situation(
        {**_SLOW, "kills": (4.0, 10.0), "workers": (1, 2), "bounds": ((), *SHORT), "trouble": (0.0, 0.2)},
        tools=("look", "note"),
        failures=("unavailable", "rate"),
        habits=Habits(unasked=_CUTS),
        at_once=_AMID,
    ),
}
"""Its model takes its time for each word, and people interrupt it."""
