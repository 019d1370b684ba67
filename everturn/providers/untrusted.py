"""Reading JSON that somebody else wrote: any shape may come, and none may crash us."""

from __future__ import annotations

import json
import re
from typing import Any

from pydantic_core import from_json

_SURROGATE = re.compile("[\ud800-\udfff]")


def parse(text: str | bytes) -> Any:
    """The JSON value in `text`. Raises ValueError, also where it is nested too deeply.

    Halves of surrogate pairs are let through, because streams cut characters in two: `mend` what was joined.
    """
    try:
        return from_json(text, allow_inf_nan=False)
    except ValueError:
        if (b"\\u" if isinstance(text, bytes) else "\\u") not in text:  # type: ignore[operator]
            raise
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def mend(text: str) -> str:
    """Joins the halves of surrogate pairs; a half without its other half becomes U+FFFD."""
    if not _SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def mended(value: Any) -> Any:
    """`mend` for every text in a JSON value."""
    if isinstance(value, str):
        return mend(value)
    if isinstance(value, dict):
        return {mend(name): mended(item) for name, item in value.items()}
    if isinstance(value, list):
        return [mended(item) for item in value]
    return value


def a_dict(value: object) -> dict[str, Any]:
    """`value` if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def a_list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def a_str(value: object) -> str:
    return value if isinstance(value, str) else ""


def a_count(value: object) -> int:
    """`value` if it is a number of tokens, else 0."""
    return int(value) if isinstance(value, int | float) and value > 0 else 0


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
