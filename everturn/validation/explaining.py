"""Why a payload or a setting can't be read, in one line for people."""

from __future__ import annotations

import re

from pydantic import ValidationError

from everturn.text.shortening import shortened_line

MAX_REASON_CHARS = 600
"""Of another library's error."""

MAX_PLACE_CHARS = 200
"""A place is made of the names in what was sent, which may be anything."""


_NO_REASON = r"(SchemaError: )?(Error building .* validator|Field .*):|\^+|For further information visit .*"
"""Lines of pydantic's errors that say where its own code was, or point to its site."""


def in_one_line(error: BaseException) -> str:
    """What an error of another library says, with all its lines: the reason is often in the last one."""
    lines = [line.strip() for line in str(error).splitlines()]
    reasons = [line for line in lines if line and not re.fullmatch(_NO_REASON, line)]
    return shortened_line(" ".join(reasons or [type(error).__name__]), MAX_REASON_CHARS)


def why_unreadable(error: Exception) -> str:
    """What a converter raised, in words."""
    if isinstance(error, ValueError):
        return explain(error)
    return str(getattr(error, "message", "")) or repr(error)


def explain(error: ValueError) -> str:
    """A pydantic error in one line: `limits.max_turns: Input should be greater than or equal to 1; …`."""
    if not isinstance(error, ValidationError):
        return str(error)
    faults = error.errors(include_url=False, include_input=False, include_context=False)
    places = (".".join(map(str, fault["loc"]))[:MAX_PLACE_CHARS] or "it" for fault in faults[:5])
    lines = [
        f"{place}: {fault['msg'].removeprefix('Value error, ')}"
        for place, fault in zip(places, faults[:5], strict=True)
    ]
    if len(faults) > 5:
        lines.append("…")
    return "; ".join(lines)
