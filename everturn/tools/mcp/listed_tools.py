"""An MCP server's list of tools, as everturn's: which an agent gets, and their effects by annotations and overrides."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from everturn import names
from everturn.errors import EverturnError, InvalidTool
from everturn.logs import get_logger
from everturn.sizes import MAX_DEPTH, size_of, too_deep
from everturn.tools.arguments import SchemaArguments
from everturn.tools.context import ToolContext
from everturn.tools.mcp import limits, tasks
from everturn.tools.mcp.config import McpServer, McpTool
from everturn.tools.mcp.tool_names import names_of
from everturn.tools.tool import Effect, Tool

if TYPE_CHECKING:
    from mcp import ClientSession, types

CONTEXT = "everturn context"
"""The name that passes the call's context; no argument has it."""

_NO_OVERRIDE = McpTool()

_log = get_logger("everturn.mcp")


@dataclass(frozen=True)
class ListedTool:
    """What a call needs to know about its tool."""

    name: str
    """The server's own."""
    effect: Effect
    tasks: tasks.Made = "never"


Run = Callable[[ListedTool, ToolContext, dict[str, Any]], Awaitable[Any]]


@dataclass
class ToolList:
    """A server's tools, as it says them."""

    tools: list[types.Tool]
    """Those that nobody allowed have their names alone."""
    cut: str = ""
    """Why these are not all; empty if they are."""


async def list_tools(session: ClientSession, server: McpServer) -> ToolList:
    """All that the server has, page by page, up to a limit. Raises MCPError."""
    from mcp import types

    tool_list = ToolList([])
    count = 0
    size = 0
    cursor: str | None = None
    for _ in range(limits.MAX_PAGES):
        page = await session.list_tools(params=types.PaginatedRequestParams(cursor=cursor) if cursor else None)
        for tool in page.tools:
            if not _is_allowed(server, tool.name):
                tool_list.tools.append(types.Tool(name=tool.name, input_schema={}))
                continue
            count += 1
            size += _size_of_tool(tool)
            if count > limits.MAX_SERVER_TOOLS or size > limits.MAX_LIST_BYTES:
                return _cut_list(server, tool_list, count - 1)
            tool_list.tools.append(tool)
        cursor = page.next_cursor
        if not cursor:
            return tool_list
    return _cut_list(server, tool_list, count)


def _cut_list(server: McpServer, tool_list: ToolList, count: int) -> ToolList:
    most = f"{limits.MAX_SERVER_TOOLS:,} tools, {limits.MAX_LIST_BYTES:,} bytes, {limits.MAX_PAGES:,} pages"
    tool_list.cut = f"only its first {count:,} tools are taken; the limit is {most}. Name those you need: allow=[...]"
    _log.warning("mcp.list_cut", server=server.label, why=tool_list.cut)
    return tool_list


def _size_of_tool(tool: types.Tool) -> int:
    return size_of([tool.name, tool.title, tool.description, tool.input_schema])


def tools_of(
    server: McpServer, server_tools: Sequence[types.Tool], run: Run, makes: tasks.Made = "never"
) -> tuple[Tool, ...]:
    """The tools that the agent gets, by their names: a server may list them in another order each time. An unusable one
    is left out, with a line in the log. `makes`: whether the server makes tasks of calls."""
    listed_tools = sorted(server_tools, key=lambda listed_tool: listed_tool.name)
    wanted = [listed_tool for listed_tool in listed_tools if _is_allowed(server, listed_tool.name)]
    _warn_of_unknown(server, {listed_tool.name for listed_tool in server_tools})
    known_names = names_of(server, [listed_tool.name for listed_tool in wanted])
    tools: dict[str, Tool] = {}
    for listed_tool in wanted:
        left_out = partial(_log.warning, "mcp.tool_left_out", server=server.label, tool=listed_tool.name)
        try:
            tool = _make_tool(
                server, listed_tool, run, tasks.made_for(makes, listed_tool), known_names[listed_tool.name]
            )
        except EverturnError as error:
            left_out(why=str(error))
            continue
        if tool.name in tools:
            left_out(why=f"two tools are called {tool.name!r}")
            continue
        tools[tool.name] = tool
    return tuple(tools.values())


def _is_allowed(server: McpServer, name: str) -> bool:
    return (server.allow is None or name in server.allow) and name not in server.deny


def _warn_of_unknown(server: McpServer, tool_names: set[str]) -> None:
    for option, option_names in (
        ("allow", server.allow or ()),
        ("deny", server.deny),
        ("overrides", tuple(server.overrides)),
    ):
        if unknown := sorted(set(option_names) - tool_names):
            _log.warning(
                "mcp.no_such_tool", server=server.label, option=option, names=unknown, has=sorted(tool_names)[:50]
            )


def _make_tool(server: McpServer, listed_tool: types.Tool, run: Run, task_mode: tasks.Made, name: str) -> Tool:
    override = server.overrides.get(listed_tool.name, _NO_OVERRIDE)
    effect, asks = _effect_and_approval(listed_tool)
    effect = override.effect or effect
    timeout = override.timeout or server.timeout
    schema = listed_tool.input_schema
    if not isinstance(schema, dict) or schema.get("type", "object") != "object":
        raise InvalidTool("Its arguments are not a JSON object.", cure="Tell the server's authors.")
    if too_deep(schema):
        raise InvalidTool(f"Its schema is nested more than {MAX_DEPTH} levels deep.", cure="Tell the server's authors.")
    if (size := _size_of_tool(listed_tool)) > limits.MAX_TOOL_BYTES:
        raise InvalidTool(
            f"Its description and schema have {size:,} bytes; the limit is {limits.MAX_TOOL_BYTES:,}.",
            cure="Tell the server's authors.",
        )

    async def call(**arguments: Any) -> Any:
        context: ToolContext = arguments.pop(CONTEXT)
        return await run(ListedTool(listed_tool.name, effect, task_mode), context, arguments)

    title = listed_tool.title
    if not title and listed_tool.annotations:
        title = listed_tool.annotations.title
    if override.needs_approval is not None:
        asks = override.needs_approval
    return Tool(
        name=name,
        description=override.description or listed_tool.description or title or "",
        arguments=SchemaArguments(schema),
        function=call,
        context_parameters=(CONTEXT,),
        needs_approval=asks,
        effect=effect,
        attaches=task_mode != "never",
        timeout=timeout,
        patience=max(override.patience or server.patience, timeout),
        module=server.label,
    )


def _effect_and_approval(listed_tool: types.Tool) -> tuple[Effect, bool]:
    """What running it twice means, and whether it needs approval. A missing hint counts as false."""
    from mcp import types

    hints = listed_tool.annotations or types.ToolAnnotations()
    if hints.read_only_hint:
        return "read", False
    # Each of our calls has a key.
    repeatable = hints.idempotent_hint or (listed_tool.meta or {}).get(names.MCP_IDEMPOTENT_WITH_KEY) is True
    return "idempotent" if repeatable else "once", bool(hints.destructive_hint)
