"""JSON that every reader takes: RFC 8259 has no NaN and no infinity, and UTF-8 has no half of a surrogate pair."""

from __future__ import annotations

import json
from typing import Any

from everturn.system.json_numbers import numbers_as_texts


def json_text(value: Any, *, indent: int | None = None, compact: bool = False) -> str:
    """The value as JSON. A number that JSON doesn't have becomes a text that names it: "NaN", "Infinity" or
    "-Infinity"."""
    separators = (",", ":") if compact else None
    try:
        return json.dumps(value, ensure_ascii=False, indent=indent, separators=separators, allow_nan=False)
    except ValueError:
        writable = numbers_as_texts(value)
        return json.dumps(writable, ensure_ascii=False, indent=indent, separators=separators, allow_nan=False)


def json_bytes(value: Any, *, compact: bool = False) -> bytes:
    """The same in UTF-8. Half of a surrogate pair becomes a question mark."""
    return json_text(value, compact=compact).encode(errors="replace")
