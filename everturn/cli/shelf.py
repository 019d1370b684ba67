"""What there is to use: `tools` and `models`."""

from __future__ import annotations

import json
import os
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


def models(as_json: JsonOption = False) -> None:
    """Show the providers, and which keys are set here."""
    from everturn.providers.catalog import PROVIDERS

    rows = [_provider(name) for name in PROVIDERS]
    if as_json:
        tell_json(rows, indent=2)
        return
    from rich.text import Text

    from everturn.cli.render import columns
    from everturn.cli.terminal import Screen

    yes, no = Text("✓ yes", style="green"), Text("– no", style="dim")
    table = [
        (
            f"{row['provider']}:",
            yes if row["ready"] else no,
            " or ".join(row["keys"]) or "(none needed)",
            row["base_url"] or f"set {row['base_url_variable']}",
        )
        for row in rows
    ]
    Screen(to_stdout=True).lines(columns(("PROVIDER", "READY", "KEY", "ADDRESS"), table))


def _provider(name: str) -> dict[str, Any]:
    from everturn.providers.catalog import PROVIDERS, address_variable, without_password

    row, variable = PROVIDERS[name], address_variable(name)
    given = os.environ.get(variable, "").strip()
    keys_set = [key for key in row.keys if os.environ.get(key, "").strip()]
    return {
        "provider": name,
        # Somebody's own server often takes no key.
        "ready": bool((given or row.base_url) and (keys_set or given or not row.keys)),
        "keys": list(row.keys),
        "keys_set": keys_set,
        "base_url": without_password(given or row.base_url or "") or None,
        "base_url_variable": variable,
    }


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
