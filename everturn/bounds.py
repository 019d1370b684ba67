"""How large things are where they are sent, and how a tool's result is cut to what a payload and a model can take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic_core import to_json

from everturn.records import ResultPart, Text

MAX_PAYLOAD_BYTES = 2_000_000
"""Temporal takes payloads of 2 MiB; this leaves room for what it puts around one."""

MAX_RESULT_BYTES = 1_500_000
"""Of a result's content: texts, images and documents together."""


def size_of(value: Any) -> int:
    """Bytes as JSON: what the value takes in a payload."""
    return len(to_json(value, inf_nan_mode="constants", fallback=str))


def fits(content: Sequence[ResultPart], *, max_chars: int, max_bytes: int = MAX_RESULT_BYTES) -> bool:
    return chars_of(content) <= max_chars and size_of(content) <= max_bytes


def bounded(
    content: Sequence[ResultPart], *, max_chars: int, more: str, max_bytes: int = MAX_RESULT_BYTES
) -> tuple[ResultPart, ...]:
    """The content, cut to what fits, with a notice that the model can read in the place of what is missing.

    `more` ends each notice: what can be done about it; `{shown}` in it becomes the number of characters shown.
    """
    total, shown, room = chars_of(content), 0, max_bytes
    kept: list[ResultPart] = []
    ended = False
    for part in content:
        if isinstance(part, Text):
            if ended:
                continue
            whole = len(part.text) <= max_chars - shown and size_of(part) <= room
            new = part if whole else Text(text=_fitted(part.text, max_chars - shown, room))
            shown += len(new.text)
            if not whole:
                ended = True
                room -= size_of(new)
                new = Text(text=new.text + _notice(f"Cut: {shown:,} of {total:,} characters are shown.", more, shown))
                kept.append(new)
                continue
        else:
            new = part
            if size_of(part) > room:
                new = Text(text=_notice(f"Left out, for it is too large: {described(part)}.", more, shown))
        kept.append(new)
        room = max(0, room - size_of(new))
    return tuple(kept)


def described(part: ResultPart) -> str:
    """A part that is no text, in words."""
    if isinstance(part, Text):
        return part.text
    named = f" {name!r}" if (name := getattr(part, "name", "")) else ""
    size = f"{len(part.data):,} base64 characters" if part.data else part.url or "empty"
    return f"{part.kind}{named} ({part.media_type or 'of unknown type'}, {size[:200]})"


def chars_of(content: Sequence[ResultPart]) -> int:
    return sum(len(part.text) for part in content if isinstance(part, Text))


def _notice(what: str, more: str, shown: int) -> str:
    return f"\n[{what} {more.replace('{shown}', str(shown))}]"


def _fitted(text: str, max_chars: int, max_bytes: int) -> str:
    text = text[: max(0, max_chars)]
    while (size := size_of(text)) > max_bytes:
        text = text[: len(text) * max_bytes // size]
        if max_bytes <= 2:
            return ""
    return text
