"""Asks the MCP servers of agents for their current tools. Each is started, or connected to, only for that."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from everturn.errors import EverturnError, InvalidTool
from everturn.system import extras

if TYPE_CHECKING:
    from everturn.agent import Agent
    from everturn.tools.mcp.config import McpServer
    from everturn.tools.tool import Tool

LONGEST_SECONDS = 30.0
"""How long a server may take to start and list what it has."""


@dataclass(frozen=True)
class ServersList:
    server: McpServer
    tools: tuple[Tool, ...] = ()
    problem: str = ""
    """Why there is no list; empty if there is one."""
    cut: str = ""
    """Why the list has not all of its tools; empty if it has."""


async def servers_lists(agents: Iterable[Agent]) -> list[ServersList]:
    """One for each server of these agents, in their order. Raises EverturnError if the extra is missing."""
    servers = [server for agent in agents for server in agent.mcp_servers]
    if not servers:
        return []
    try:
        from everturn.tools.mcp.connections import ServerConnections
    except ImportError as error:
        raise EverturnError(f"{error.name} is not installed.", cure=extras.install("mcp")) from None
    connections = ServerConnections(on_change=lambda _: None)
    try:
        return list(await asyncio.gather(*(_list_tools(connections, server) for server in servers)))
    finally:
        await connections.close()


async def _list_tools(connections: Any, server: McpServer) -> ServersList:
    from mcp import MCPError

    from everturn.tools.mcp import tasks
    from everturn.tools.mcp.connections import NotConnected
    from everturn.tools.mcp.listed_tools import list_tools, tools_of

    async def refuse_call(*_: object) -> None:
        raise NotImplementedError

    try:
        connection = connections.connection_to(server)
        async with asyncio.timeout(LONGEST_SECONDS):
            session = await connection.opened_session()
            listing = await list_tools(session, server)
    except TimeoutError:
        return ServersList(server, problem=f"no list came within {LONGEST_SECONDS:g} s")
    except (MCPError, NotConnected, InvalidTool, ValueError) as error:
        problem = connection.ended_for or str(error)
        if not connection.ended_for and (cure := getattr(error, "cure", "")):
            problem += f". {cure}"
        return ServersList(server, problem=problem)
    return ServersList(server, tools_of(server, listing.tools, refuse_call, tasks.made_by(session)), cut=listing.cut)
