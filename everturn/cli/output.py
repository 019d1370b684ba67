"""Standard output, where results go. Control and invisible characters never reach a terminal raw."""

from __future__ import annotations

import sys
from typing import Any

from everturn.text.json_text import json_text
from everturn.text.printable import printable


def print_text(text: str) -> None:
    """Prints lines for people."""
    print(printable(text), flush=True)


def print_json(value: Any, *, indent: int | None = None) -> None:
    """Prints a value for programs. Unsafe characters are written as JSON escapes, so the value stays the same."""
    print_text(json_text(value, indent=indent))


def print_result(text: str, *, end: str = "\n") -> None:
    """Prints a text: unchanged into a program or a file, and with unsafe characters made visible on a terminal."""
    sys.stdout.write((printable(text) if sys.stdout.isatty() else text) + end)
    sys.stdout.flush()
