"""The example that comes with everturn, and where it is."""

from __future__ import annotations

from pathlib import Path
from typing import Final

AGENT: Final = "bookkeeper.py"
MODEL: Final = "bookkeeper_model.py"
INVOICES: Final = "invoices"
SCRIPTED: Final = "scripted:bookkeeper"


def examples_folder() -> Path | None:
    """The examples: of the checkout, or those that a wheel carries. None if there are none."""
    package = Path(__file__).parents[2]
    folders = (package.parent / "examples", package / "examples")
    return next((folder for folder in folders if (folder / AGENT).is_file()), None)
