"""The MCP tools of a worker's agents: listed when it starts, and again as they change; called over its connections."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakKeyDictionary

from everturn.activities.mcp_memory import ThisTry
from everturn.errors import InvalidTool
from everturn.logs import get_logger
from everturn.system import extras
from everturn.tools.context import ToolContext
from everturn.tools.mcp import tasks
from everturn.tools.mcp.config import McpServer
from everturn.tools.mcp.connections import ConnectionLost, NotConnected, ServerConnections
from everturn.tools.tool import Tool

if TYPE_CHECKING:
    from everturn.agent import Agent

START_SECONDS = 10.0
"""How long a starting worker waits for its servers. Turns then wait for the servers that are still missing."""

LIST_SECONDS = 30.0

REFRESH_SECONDS = 5.0
"""How long a turn waits for a new list if there is an older one."""
AGAIN_SECONDS = 30.0
"""How soon a new list is asked for again after that failed, if there is an older one."""

MOST_SERVERS_MET = 1_000
"""So many servers of agents from the agent store are remembered, counted once for each agent."""

_log = get_logger("everturn.mcp")


class NotListed(Exception):
    """A server's tools are not known yet: it can't be reached. The message is the cause of a stall."""

    def __init__(self, server: McpServer, reason: str, cure: str = "") -> None:
        super().__init__(f"The tools of MCP server {server.label!r} can't be listed: {reason}.")
        self.server = server
        self.cure = cure


@dataclass
class _Toolset:
    """One server's tools, as one agent has them."""

    server: McpServer
    tools: tuple[Tool, ...] | None = None
    """None until they were listed once."""
    marks: Mapping[str, str] = field(default_factory=dict)
    """For those whose names had to be changed for the model: names that no other tool has."""
    listed_at: float = 0.0
    stale: bool = True
    failed_at: float = -AGAIN_SECONDS
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def is_due(self) -> bool:
        if self.tools is not None and time.monotonic() < self.failed_at + AGAIN_SECONDS:
            return False
        return self.stale or time.monotonic() - self.listed_at > self.server.refresh.total_seconds()


class Toolsets:
    """Enter it with the worker: `async with Toolsets(agents) as toolsets`."""

    def __init__(self, agents: Iterable[Agent]) -> None:
        self._toolsets = {id(server): _Toolset(server) for agent in agents for server in agent.mcp_servers}
        self._met: dict[int, _Toolset] = {}
        self._connections = ServerConnections(on_change=self._mark_stale)
        self._completed: WeakKeyDictionary[Agent, tuple[tuple[Any, ...], Agent]] = WeakKeyDictionary()

    async def __aenter__(self) -> Self:
        if self._toolsets:
            check_installed()
            first = [asyncio.create_task(self._listed_quietly(toolset)) for toolset in self._toolsets.values()]
            await asyncio.wait(first, timeout=START_SECONDS)
            for task in first:
                task.cancel()
            await asyncio.gather(*first, return_exceptions=True)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._connections.close()

    async def complete_agent(self, agent: Agent, *, wanted: str = "") -> Agent:
        """The agent with the tools that its servers have now. `wanted`: the name of a tool that is needed. If a server
        has it, servers that can't be reached do not matter.

        Raises NotListed for a server that was never reached, unless it is optional and no tool is wanted."""
        if not agent.mcp_servers:
            return agent
        toolsets = [self._toolset_of(server) for server in agent.mcp_servers]
        if wanted and (known := self._agent_with(agent, toolsets)).tool(wanted):
            return known
        missing = await asyncio.gather(*(self._refresh_list(toolset, at_once=bool(wanted)) for toolset in toolsets))
        completed = self._agent_with(agent, toolsets)
        away = [error for toolset, error in zip(toolsets, missing, strict=True) if error and toolset.tools is None]
        if wanted and completed.tool(wanted):
            return completed
        for error in away:
            if wanted or not error.server.optional:
                raise error
        return completed

    def _toolset_of(self, server: McpServer) -> _Toolset:
        """The server's toolset. For an agent of the store it is made on first use, and may be forgotten again."""
        if (known := self._toolsets.get(id(server)) or self._met.get(id(server))) is not None:
            return known
        check_installed()
        while len(self._met) >= MOST_SERVERS_MET:
            self._met.pop(next(iter(self._met)))
        self._met[id(server)] = toolset = _Toolset(server)
        return toolset

    # ------------------------------------------------------------ lists

    async def _refresh_list(self, toolset: _Toolset, *, at_once: bool = False) -> NotListed | None:
        """Lists the tools if that is due. If that fails, the older list stays."""
        async with toolset.lock:
            if not (toolset.is_due or at_once):
                return None
            try:
                await self._list_tools(toolset)
            except NotListed as error:
                toolset.failed_at = time.monotonic()
                _log.warning("mcp.not_listed", server=toolset.server.label, why=str(error))
                return error
        return None

    async def _listed_quietly(self, toolset: _Toolset) -> None:
        await self._refresh_list(toolset)

    async def _list_tools(self, toolset: _Toolset) -> None:
        from mcp import MCPError

        from everturn.tools.mcp.listed_tools import ListedTool, list_tools, tools_of
        from everturn.tools.mcp.tool_names import marks_of

        server = toolset.server
        connection = self._connections.connection_to(toolset.server)
        toolset.stale = False  # if the server reports a change meanwhile, it is stale again
        known = toolset.tools is not None
        # It may be started twice: the second time for the older handshake.
        limit = LIST_SECONDS + 2 * server.start_timeout.total_seconds()
        if known:
            limit = REFRESH_SECONDS
        try:
            async with asyncio.timeout(limit):
                session = await connection.opened_session()
                listing = await list_tools(session, server)
        except (MCPError, NotConnected, ConnectionLost, InvalidTool, TimeoutError, ValueError) as error:
            toolset.stale = True
            if not (isinstance(error, NotConnected) or (known and isinstance(error, TimeoutError))):
                with suppress(Exception):
                    await self._connections.renew(connection)
            reason = connection.ended_for or str(error) or f"no list came within {limit:g} s"
            raise NotListed(server, reason, getattr(error, "cure", "")) from None

        async def call_tool(tool: ListedTool, context: ToolContext, arguments: dict[str, Any]) -> Any:
            from everturn.tools.mcp.calls import ServerCall

            return await ServerCall(self._connections, server, tool, context, ThisTry()).call_tool(arguments)

        toolset.tools = tools_of(server, listing.tools, call_tool, tasks.made_by(session))
        toolset.marks = marks_of(server, [listed_tool.name for listed_tool in listing.tools])
        toolset.listed_at = time.monotonic()
        _log.info("mcp.listed", server=server.label, tools=[tool.name for tool in toolset.tools])

    def _mark_stale(self, server: McpServer) -> None:
        for toolset in (*self._toolsets.values(), *self._met.values()):
            if toolset.server.place == server.place:
                toolset.stale = True

    def _agent_with(self, agent: Agent, toolsets: Sequence[_Toolset]) -> Agent:
        """The agent with these tools; the same object while nothing changes. A tool of the agent's own goes before a
        server's tool of the same name."""
        lists = tuple(toolset.tools for toolset in toolsets)
        before = self._completed.get(agent)
        if before and len(before[0]) == len(lists) and all(a is b for a, b in zip(before[0], lists, strict=True)):
            return before[1]
        added_tools: dict[str, Tool] = {}
        unchanged = {
            tool.name for toolset in toolsets for tool in toolset.tools or () if tool.name not in toolset.marks
        }
        for toolset in toolsets:
            for tool in toolset.tools or ():
                mark = toolset.marks.get(tool.name)
                if mark and (agent.tool(tool.name) or tool.name in unchanged | added_tools.keys()):
                    tool = replace(tool, name=mark)  # noqa: PLW2901 - the same tool, by another name
                if agent.tool(tool.name) or tool.name in added_tools:
                    cure = "McpServer(prefix='...')"
                    _log.warning("mcp.name_taken", server=toolset.server.label, tool=tool.name, cure=cure)
                else:
                    added_tools[tool.name] = tool
        completed = agent.with_tools(*added_tools.values())
        self._completed[agent] = lists, completed
        return completed


def check_installed() -> None:
    """Raises InvalidTool if the SDK is not here."""
    try:
        import mcp  # noqa: F401
    except ImportError as error:
        raise InvalidTool(
            f"An agent has an McpServer, which needs {error.name}. It is not installed.", cure=extras.install("mcp")
        ) from None
