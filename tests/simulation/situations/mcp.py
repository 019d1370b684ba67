"""Tools of MCP servers."""

from __future__ import annotations

from typing import Any

from tests.simulation.agents.mcp import MCP_TOOLS
from tests.simulation.situations.situation import CALM, SHORT, Habits, Situation

_TALK = Habits(unasked=("say", "say", "cancel_turn", "pause", "resume"))

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

ELSEWHERE: dict[str, Situation] = {
    "MCP tasks elsewhere": Situation(
        {
            **_SERVERS,
            "mcp_trouble": (0.0,),
            "mcp_changes": (0.0,),
            "kills": (6.0, 12.0),
            "workers": (1, 2),
            "deploys": (True,),
            "strangers": (True,),
            "trouble": (0.0,),
            "coincidences": (0.0,),
            "bounds": ((),),
        },
        tools=tuple(name for name in MCP_TOOLS if name.endswith("build")),
        habits=Habits(unasked=("say",)),
    ),
}
"""A worker is lost in the middle of a call, and the next one does not host its agent."""
