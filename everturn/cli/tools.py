"""`everturn tools`: the tools that a file's functions become."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from everturn.cli.options import JsonOption
from everturn.cli.output import tell_json

if TYPE_CHECKING:
    from everturn.tools.tool import Tool


def tools(
    file: Annotated[Path, typer.Argument(metavar="FILE.py", help="A file of functions.")],
    mcp: Annotated[
        bool, typer.Option("--mcp", help="Show the tools of its agents' MCP servers instead. Starts the servers.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show a file's functions as the tools that a model sees."""
    from everturn.loading import load_tools

    made = asyncio.run(_of_servers(file)) if mcp else load_tools(file)
    if as_json:
        tell_json([_described(tool) for tool in made], indent=2)
        return
    from everturn.cli.terminal import Screen

    screen = Screen(to_stdout=True)
    for tool in made:
        asks = ", asks a person" if tool.needs_approval is True else ", may ask a person" if tool.needs_approval else ""
        screen.line(tool.name, style="bold cyan")
        screen.line(f"  {tool.description or '(no description: write a docstring)'}")
        screen.line(f"  effect: {tool.effect}{asks}{_bound(tool)}", style="dim")
        written = json.dumps(tool.parameters, ensure_ascii=False, indent=2)
        screen.line("\n".join("  " + line for line in written.splitlines()) + "\n")


async def _of_servers(file: Path) -> list[Tool]:
    """The tools of the file's MCP servers. Raises EverturnError if a server can't be asked."""
    from everturn.cli.connect import quiet_logs
    from everturn.cli.mcp_lists import servers_lists
    from everturn.cli.terminal import Screen
    from everturn.errors import EverturnError
    from everturn.loading import load_agents

    quiet_logs(None)
    lists = await servers_lists(load_agents(str(file)))
    if not lists:
        raise EverturnError(f"No agent in {file} has an McpServer.", cure="Leave --mcp out.")
    for one in lists:
        if one.problem:
            raise EverturnError(f"MCP server {one.server.label!r} can't be asked: {one.problem}.", cure="Start it.")
        if one.cut:
            Screen().line(f"MCP server {one.server.label!r}: {one.cut}", style="yellow")
    return [tool for one in lists for tool in one.tools]


def _bound(tool: Tool) -> str:
    return f"; at most {tool.timeout}" if tool.bounded else ""


def _described(tool: Tool) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "effect": tool.effect,
        "needs_approval": tool.needs_approval if isinstance(tool.needs_approval, bool) else "sometimes",
        "timeout_seconds": tool.timeout.total_seconds() if tool.bounded else None,
    }
