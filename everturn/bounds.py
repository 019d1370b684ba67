"""How large things are where they are sent, and how a tool's result is cut to what a payload and a model can take."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_core import PydanticSerializationError, to_json

from everturn.errors import Refused
from everturn.records import ResultPart, Text
from everturn.sizes import MAX_DEPTH, too_deep

MAX_PAYLOAD_BYTES = 2_000_000
"""Temporal takes payloads of 2 MiB; this leaves room for what it puts around one."""

MAX_RESULT_BYTES = 1_500_000
"""Of a result's content: texts, images and documents together."""


INLINE_CHARS = 2_048
"""A larger tool result is not written into the history a second time: the delta names it (decision 0003)."""

MAX_INPUT_CHARS = 400_000
"""JSON of one message, decision or answer: each goes on into the next model turn's payload."""


def check_input(what: str, value: Any) -> None:
    """Raises Refused for what a conversation would not take for its size, before it is sent."""
    deep = Refused(f"The {what} is nested more than {MAX_DEPTH} levels deep.", cure="Flatten it, or send it as a text.")
    if too_deep(value):
        raise deep
    try:
        written = to_json(value, inf_nan_mode="constants", fallback=str).decode()
    except PydanticSerializationError as error:  # half of a surrogate pair, such as bytes of a command line become
        raise Refused(f"The {what} can't be written as UTF-8: {error}.", cure="Send text in UTF-8.") from None
    if written.count("{") + written.count("[") > MAX_DEPTH and too_deep(json.loads(written)):
        raise deep
    # In characters, as the workflow counts: it is told the limit by the same number.
    if (size := len(written)) > MAX_INPUT_CHARS:
        raise Refused(
            f"The {what} has {size:,} characters of JSON; the limit is {MAX_INPUT_CHARS:,}.",
            cure="Put it where a tool can read it, and send its name or a link.",
        )


def size_of(value: Any) -> int:
    """Bytes as JSON: what the value takes in a payload."""
    return len(to_json(value, inf_nan_mode="constants", fallback=str))


def fits(content: Sequence[ResultPart], *, max_chars: int, max_bytes: int = MAX_RESULT_BYTES) -> bool:
    return chars_of(content) <= max_chars and size_of(content) <= max_bytes


@dataclass(frozen=True)
class Notice:
    """What the model is told, beside the sizes, in the place of what is missing."""

    text: str = "Ask for less, or for a part."
    """Of a text that was cut; `{shown}` becomes the number of characters shown."""
    other: str = "Ask for a smaller one."
    """Of an image or document that was left out."""


def bounded(
    content: Sequence[ResultPart], *, max_chars: int, notice: Notice, max_bytes: int = MAX_RESULT_BYTES
) -> tuple[ResultPart, ...]:
    """The content, cut to what fits. Behind the text that was cut, there is no more text."""
    total, shown, room = chars_of(content), 0, max_bytes
    kept: list[ResultPart] = []
    for part in content:
        new: ResultPart = part
        if not isinstance(part, Text):
            if size_of(part) > room:
                new = Text(text=f"\n[Left out, for it is too large: {described(part)}. {notice.other}]")
        elif max_chars < 0:
            continue
        elif len(part.text) <= max_chars and size_of(part) <= room:
            shown, max_chars = shown + len(part.text), max_chars - len(part.text)
        else:
            text = _fitted(part.text, max_chars, room)
            shown, max_chars = shown + len(text), -1
            more = notice.text.replace("{shown}", str(shown))
            new = Text(text=f"{text}\n[Cut: {shown:,} of {total:,} characters are shown. {more}]")
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


def _fitted(text: str, max_chars: int, max_bytes: int) -> str:
    text = text[:max_chars]
    while text and (size := size_of(text)) > max_bytes:
        text = text[: len(text) * max_bytes // size]
    return text
