"""An MCP server's list of tools, as everturn's: names that models take, and effects by annotations and overrides."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
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
from everturn.tools.tool import Effect, Tool

if TYPE_CHECKING:
    from mcp import ClientSession, types

CONTEXT = "everturn context"
"""The name that passes the call's context; no argument has it."""

MAX_TOOL_NAME_CHARS = 64
"""As of all tools: OpenAI refuses longer names."""

_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")
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
class Found:
    """A server's tools, as it says them."""

    tools: list[types.Tool]
    """Those that nobody allowed have their names alone."""
    cut: str = ""
    """Why these are not all; empty if they are."""


async def listed(session: ClientSession, server: McpServer) -> Found:
    """All that the server has, page by page, up to a limit. Raises MCPError."""
    from mcp import types

    found, taken, size = Found([]), 0, 0
    cursor: str | None = None
    for _ in range(limits.MAX_PAGES):
        page = await session.list_tools(params=types.PaginatedRequestParams(cursor=cursor) if cursor else None)
        for one in page.tools:
            if not _allowed(server, one.name):
                found.tools.append(types.Tool(name=one.name, input_schema={}))
                continue
            taken, size = taken + 1, size + _size(one)
            if taken > limits.MAX_SERVER_TOOLS or size > limits.MAX_LIST_BYTES:
                return _cut(server, found, taken - 1)
            found.tools.append(one)
        cursor = page.next_cursor
        if not cursor:
            return found
    return _cut(server, found, taken)


def _cut(server: McpServer, found: Found, taken: int) -> Found:
    most = f"{limits.MAX_SERVER_TOOLS:,} tools, {limits.MAX_LIST_BYTES:,} bytes, {limits.MAX_PAGES:,} pages"
    found.cut = f"only its first {taken:,} tools are taken; the limit is {most}. Name those you need: allow=[...]"
    _log.warning("mcp.list_cut", server=server.label, why=found.cut)
    return found


def _size(one: types.Tool) -> int:
    return size_of([one.name, one.title, one.description, one.input_schema])


def tools_of(server: McpServer, found: Sequence[types.Tool], run: Run, makes: tasks.Made = "never") -> tuple[Tool, ...]:
    """The tools that the agent gets, by their names: a server may list them in another order each time. An unusable one
    is left out, with a line in the log. `makes`: whether the server makes tasks of calls."""
    listed_tools = sorted(found, key=lambda listed_tool: listed_tool.name)
    wanted = [listed_tool for listed_tool in listed_tools if _allowed(server, listed_tool.name)]
    _warn_of_unknown(server, {listed_tool.name for listed_tool in found})
    known_names = names_of(server, [listed_tool.name for listed_tool in wanted])
    tools: dict[str, Tool] = {}
    for listed_tool in wanted:
        left_out = partial(_log.warning, "mcp.tool_left_out", server=server.label, tool=listed_tool.name)
        try:
            tool = _tool(server, listed_tool, run, tasks.made_for(makes, listed_tool), known_names[listed_tool.name])
        except EverturnError as error:
            left_out(why=str(error))
            continue
        if tool.name in tools:
            left_out(why=f"two tools are called {tool.name!r}")
            continue
        tools[tool.name] = tool
    return tuple(tools.values())


def names_of(server: McpServer, own_names: Iterable[str]) -> dict[str, str]:
    """What the model calls these tools of the server, by the server's own names. A name that had to be changed takes
    nobody's place: if another tool has it, it gets a mark."""
    known = {name: known_as(server, name) for name in own_names}
    times = Counter(known.values())
    return {
        name: marked(server, name) if times[plain] > 1 and is_changed(server, name) else plain
        for name, plain in known.items()
    }


def known_as(server: McpServer, name: str) -> str:
    """What the model calls it: letters, digits, _ and -, 64 at the most."""
    plain = _plain(_whole(server, name))
    fits = len(plain) <= MAX_TOOL_NAME_CHARS and plain not in names.RESERVED_TOOL_NAMES
    return plain if fits else marked(server, name)


def marks_of(server: McpServer, own_names: Iterable[str]) -> dict[str, str]:
    """For each of the names that were changed, as the model knows it: a name that no other tool has."""
    known = names_of(server, own_names)
    return {shown: marked(server, name) for name, shown in known.items() if is_changed(server, name)}


def is_changed(server: McpServer, name: str) -> bool:
    """Whether what the model calls it is not as the server, or the user, wrote it."""
    return known_as(server, name) != _whole(server, name)


def marked(server: McpServer, name: str) -> str:
    """A name that no other tool has: its end is a digest of the server's name for it."""
    whole = _whole(server, name)
    digest = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{_plain(whole)[: MAX_TOOL_NAME_CHARS - 9]}_{digest}"


def _whole(server: McpServer, name: str) -> str:
    shown = server.overrides.get(name, _NO_OVERRIDE).name or name
    return f"{server.prefix}_{shown}" if server.prefix else shown


def _plain(whole: str) -> str:
    plain = _NOT_IN_NAMES.sub("_", whole)
    return plain if plain[:1].isalpha() or plain[:1] == "_" else f"_{plain}"


def _allowed(server: McpServer, name: str) -> bool:
    return (server.allow is None or name in server.allow) and name not in server.deny


def _warn_of_unknown(server: McpServer, found: set[str]) -> None:
    for option, said in (("allow", server.allow or ()), ("deny", server.deny), ("overrides", tuple(server.overrides))):
        if unknown := sorted(set(said) - found):
            _log.warning("mcp.no_such_tool", server=server.label, option=option, names=unknown, has=sorted(found)[:50])


def _tool(server: McpServer, one: types.Tool, run: Run, made: tasks.Made, name: str) -> Tool:
    said = server.overrides.get(one.name, _NO_OVERRIDE)
    effect, asks = _meaning(one)
    effect = said.effect or effect
    timeout = said.timeout or server.timeout
    schema = one.input_schema
    if not isinstance(schema, dict) or schema.get("type", "object") != "object":
        raise InvalidTool("Its arguments are not a JSON object.", cure="Tell the server's authors.")
    if too_deep(schema):
        raise InvalidTool(f"Its schema is nested more than {MAX_DEPTH} levels deep.", cure="Tell the server's authors.")
    if (size := _size(one)) > limits.MAX_TOOL_BYTES:
        raise InvalidTool(
            f"Its description and schema have {size:,} bytes; the limit is {limits.MAX_TOOL_BYTES:,}.",
            cure="Tell the server's authors.",
        )

    async def call(**arguments: Any) -> Any:
        context: ToolContext = arguments.pop(CONTEXT)
        return await run(ListedTool(one.name, effect, made), context, arguments)

    title = one.title or (one.annotations.title if one.annotations else None)
    return Tool(
        name=name,
        description=said.description or one.description or title or "",
        arguments=SchemaArguments(schema),
        function=call,
        context_parameters=(CONTEXT,),
        needs_approval=asks if said.needs_approval is None else said.needs_approval,
        effect=effect,
        attaches=made != "never",
        timeout=timeout,
        patience=max(said.patience or server.patience, timeout),
        module=server.label,
    )


def _meaning(one: types.Tool) -> tuple[Effect, bool]:
    """What running it twice means, and whether it needs approval. A missing hint counts as false."""
    from mcp import types

    hints = one.annotations or types.ToolAnnotations()
    if hints.read_only_hint:
        return "read", False
    # Each of our calls has a key.
    repeatable = hints.idempotent_hint or (one.meta or {}).get(names.MCP_IDEMPOTENT_WITH_KEY) is True
    return "idempotent" if repeatable else "once", bool(hints.destructive_hint)
