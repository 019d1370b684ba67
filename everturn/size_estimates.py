"""Whether messages and their parts fit into so many bytes of JSON: mostly known without writing them."""

from __future__ import annotations

from collections.abc import Sequence

from everturn.records import Document, Image, Message, Part, Text, ToolResult
from everturn.sizes import size_of


def fits(messages: Sequence[Message], room: int) -> bool:
    """Whether the messages fit into so many bytes of JSON. Mostly their number of characters says enough, and they need
    not be written for it."""
    return sum(map(_at_most, messages)) <= room or size_of(messages) <= room


def how_many_fit(messages: Sequence[Message], room: int) -> int:
    """How many messages, from the first on, have no more than so many bytes together."""
    if fits(messages, room):
        return len(messages)
    remaining = room - len("[")
    for count, message in enumerate(messages):
        remaining -= size_of(message) + len(",")
        if remaining < 0:
            return count
    return len(messages)


def is_larger(part: Part, size: int) -> bool:
    """Whether the part has more than so many bytes; as quickly as `fits`."""
    return _part_at_most(part) > size and (_part_at_least(part) > size or size_of(part) > size)


_ESCAPED_BYTES = 6
"""The most that one character takes: `\\u0000`."""

_RECORD_BYTES = 200
"""What a record itself takes: the names of its fields, and the fields with few values."""


def _at_most(message: Message) -> int:
    beside = _ESCAPED_BYTES * (len(message.author) + len(message.provider))
    return _RECORD_BYTES + beside + sum(map(_part_at_most, message.parts))


def _part_at_most(part: Part) -> int:
    """The most bytes that the part takes: a quick bound for texts, the exact size for anything else."""
    if part.extra:
        return size_of(part)
    match part:
        case Text(text=text):
            return _RECORD_BYTES + _ESCAPED_BYTES * len(text)
        case ToolResult(decision=None, hooks=()):
            names = _ESCAPED_BYTES * (len(part.call_id) + len(part.name))
            return _RECORD_BYTES + names + sum(map(_part_at_most, part.content))
        case _:
            return size_of(part)


def _part_at_least(part: Part) -> int:
    match part:
        case Text(text=text):
            return len(text)
        case Image() | Document():
            return len(part.data or part.url or "")
        case ToolResult(content=content):
            return sum(map(_part_at_least, content))
        case _:
            return 0
