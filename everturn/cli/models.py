"""`everturn models`: the providers, and which keys are set."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from everturn.cli.options import JsonOption
from everturn.cli.output import print_json

if TYPE_CHECKING:
    from everturn.providers.catalog import Row


def models(as_json: JsonOption = False) -> None:
    """Show the providers and which of their keys are set here."""
    from everturn.providers.catalog import all_rows

    rows = [_provider_row(name, row) for name, row in all_rows().items()]
    if as_json:
        print_json(rows, indent=2)
        return
    from rich.text import Text

    from everturn.cli.render import table_lines
    from everturn.cli.terminal import Screen

    yes = Text("✓ yes", style="green")
    no = Text("– no", style="dim")
    table = [
        (
            f"{row['provider']}:",
            yes if row["ready"] else no,
            " or ".join(row["keys"]) or "(none needed)",
            row["base_url"] or f"set {row['base_url_variable']}",
        )
        for row in rows
    ]
    Screen(to_stdout=True).print_lines(table_lines(("PROVIDER", "READY", "KEY", "ADDRESS"), table))


def _provider_row(name: str, row: Row) -> dict[str, Any]:
    from everturn.providers.catalog import address_variable, without_password

    variable = address_variable(name)
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
