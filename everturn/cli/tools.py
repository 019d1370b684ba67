"""`everturn tools`: the tools that a file's functions become."""

from __future__ import annotations

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
    as_json: JsonOption = False,
) -> None:
    """Show the tools that a file's functions become, as a model sees them."""
    from everturn.loading import load_tools

    made = load_tools(file)
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
