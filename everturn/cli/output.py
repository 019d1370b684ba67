"""Standard output, where results go: nothing that a terminal would act on, or would hide, gets through raw."""

from __future__ import annotations

import json
import sys
from typing import Any

from everturn.printable import printable


def tell(text: str) -> None:
    """Lines for people."""
    print(printable(text), flush=True)


def tell_json(value: Any, *, indent: int | None = None) -> None:
    """A value for programs. What is not safe to show is written as JSON writes it, and so stays the same value."""
    tell(json.dumps(value, ensure_ascii=False, indent=indent))


def hand_over(text: str, *, end: str = "\n") -> None:
    """A text that a program or a file is to get as it is; somebody at a terminal gets what is safe to show."""
    sys.stdout.write((printable(text) if sys.stdout.isatty() else text) + end)
    sys.stdout.flush()
