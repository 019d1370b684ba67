"""`everturn tools`: the tools that a file's functions become."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from everturn.cli.options import JsonOption
from everturn.cli.output import print_json

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

    listed_tools = asyncio.run(_list_server_tools(file)) if mcp else load_tools(file)
    if as_json:
        print_json([_tool_json(tool) for tool in listed_tools], indent=2)
        return
    from everturn.cli.terminal import Screen

    screen = Screen(to_stdout=True)
    for tool in listed_tools:
        asks = ""
        if tool.needs_approval is True:
            asks = ", asks a person"
        elif tool.needs_approval:
            asks = ", may ask a person"
        screen.print_line(tool.name, style="bold cyan")
        screen.print_line(f"  {tool.description or '(no description: write a docstring)'}")
        screen.print_line(f"  effect: {tool.effect}{asks}{_timeout_note(tool)}", style="dim")
        written = json.dumps(tool.parameters, ensure_ascii=False, indent=2)
        screen.print_line("\n".join("  " + line for line in written.splitlines()) + "\n")


async def _list_server_tools(file: Path) -> list[Tool]:
    """The tools of the file's MCP servers. Raises EverturnError if a server can't be asked."""
    from everturn.cli.connect import quiet_logs
    from everturn.cli.mcp_lists import servers_lists
    from everturn.cli.terminal import Screen
    from everturn.errors import EverturnError
    from everturn.loading import load_agents

    quiet_logs(None)
    tools_lists = await servers_lists(load_agents(str(file)))
    if not tools_lists:
        raise EverturnError(f"No agent in {file} has an McpServer.", cure="Leave --mcp out.")
    for tools_list in tools_lists:
        if tools_list.problem:
            raise EverturnError(
                f"MCP server {tools_list.server.label!r} can't be asked: {tools_list.problem}.", cure="Start it."
            )
        if tools_list.cut:
            Screen().print_line(f"MCP server {tools_list.server.label!r}: {tools_list.cut}", style="yellow")
    return [tool for tools_list in tools_lists for tool in tools_list.tools]


def _timeout_note(tool: Tool) -> str:
    return f"; at most {tool.timeout}" if tool.bounded else ""


def _tool_json(tool: Tool) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "effect": tool.effect,
        "needs_approval": tool.needs_approval if isinstance(tool.needs_approval, bool) else "sometimes",
        "timeout_seconds": tool.timeout.total_seconds() if tool.bounded else None,
    }
