"""The agent whose tools are those of MCP servers, and what its calls say about themselves."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from temporalio import activity

from everturn import McpServer, ToolContext
from tests.simulation.agents.mcp_servers import HINTS, PRESS, STAND

PLUGGED = "plugged"


def about(context: ToolContext) -> dict[str, Any]:
    """In the `_meta` of each call: the server leaves it in the ledger."""
    told = context.conversation_id, context.call_id, context.attempt, context.tenant, dict(context.metadata)
    names = ("conversation_id", "call_id", "attempt", "tenant", "metadata")
    info = activity.info()
    return {
        "about": {**dict(zip(names, told, strict=True)), "activity": [info.workflow_run_id or "", info.activity_id]}
    }


_TIMES: dict[str, Any] = {"timeout": timedelta(seconds=20), "patience": timedelta(minutes=2), "meta": about}

SERVERS = (
    McpServer(command=["stand"], name=STAND, prefix=STAND, protocol="legacy", **_TIMES),
    McpServer(url="http://press.example/mcp", name=PRESS, prefix=PRESS, **_TIMES),
)

MCP_TOOLS = tuple(f"{server}_{tool}" for server in (STAND, PRESS) for tool in HINTS)
MCP_ONCE = {f"{server}_{tool}" for server in (STAND, PRESS) for tool in ("sell", "burn", "ask", "build")}
MCP_FOLLOWED = {f"{STAND}_build", *(f"{PRESS}_{tool}" for tool in ("sell", "burn", "ask", "build"))}
"""Of those that run once, the ones that their server may make tasks of: a try may end before it has sent the call."""
MCP_ASKS = (f"{STAND}_ask", f"{PRESS}_ask", f"{PRESS}_build")
MCP_MOODS = (f"{STAND}_mood", f"{PRESS}_mood")
"""They are planned to run once, now and then."""
MCP_APPROVED = {f"{server}_burn" for server in (STAND, PRESS)}

_ERRORS = (
    r"^(stand|press) (can't be reached|refused the call|lost its connection|gave an answer that is not MCP)",
    r"^(The outcome of this call is unknown: )?(stand|press)_\w+ (did not (run|finish)|could not be run again)",
    r"^The outcome of this call is unknown: (stand|press) (may have run the call|lost its connection)",
    r"can't be done|^There is no tool|^The tool \w+ is no longer available",
)
_NOT_MCP = r"^(stand|press) has run the call, but its answer is not MCP"
"""Of `read`, which answers so now and then: another tool's answer would be read wrongly."""

MCP_ERRORS = {name: "|".join((*_ERRORS, _NOT_MCP) if name.endswith("_read") else _ERRORS) for name in MCP_TOOLS}
"""What a model may be told in place of a result: whoever it was, and why."""
