"""JSON that every reader takes: RFC 8259 has no NaN and no infinity, and UTF-8 has no half of a surrogate pair."""

from __future__ import annotations

import json
import math
from typing import Any


def json_text(value: Any, *, indent: int | None = None, compact: bool = False) -> str:
    """The value as JSON. A number that JSON doesn't have becomes a text that names it: "NaN", "Infinity" or
    "-Infinity"."""
    separators = (",", ":") if compact else None
    try:
        return json.dumps(value, ensure_ascii=False, indent=indent, separators=separators, allow_nan=False)
    except ValueError:
        writable = with_named_numbers(value)
        return json.dumps(writable, ensure_ascii=False, indent=indent, separators=separators, allow_nan=False)


def json_bytes(value: Any, *, compact: bool = False) -> bytes:
    """The same in UTF-8. Half of a surrogate pair becomes a question mark."""
    return json_text(value, compact=compact).encode(errors="replace")


def with_named_numbers(value: Any) -> Any:
    """The value with texts in the place of numbers that JSON doesn't have."""
    match value:
        case float() if not math.isfinite(value):
            return named_number(value)
        case dict():
            return {key: with_named_numbers(member) for key, member in value.items()}
        case list() | tuple():
            return [with_named_numbers(member) for member in value]
        case _:
            return value


def named_number(number: float) -> str:
    """The name that JavaScript, and Python's own json, have for a number that JSON doesn't have."""
    if math.isnan(number):
        return "NaN"
    return "Infinity" if number > 0 else "-Infinity"
