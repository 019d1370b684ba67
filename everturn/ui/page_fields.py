"""What a page sends beside what the model reads: the ids of its messages, names of files, and fields of its own. They
are kept with the message, so a page that is loaded again gets its messages back as it sent them.

They are in the `extra` of the parts, which no model is shown. A page of the other protocol gets the ids alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from pydantic import JsonValue

from everturn.records import Message, Part
from everturn.sizes import size_of

Protocol = Literal["ai-sdk", "ag-ui"]

MAX_PAGE_FIELDS_BYTES: Final = 50_000
"""Of the fields of one message. More are not kept: what the person says has to fit beside them."""

_MESSAGE: Final = "page_message"
_PART: Final = "page_part"


def with_page_fields(
    protocol: Protocol,
    parts: Sequence[Part | None],
    fields: Sequence[Mapping[str, JsonValue]],
    *,
    message_id: str,
    message_fields: Mapping[str, JsonValue],
) -> list[Part]:
    """The parts of a page's message that the model reads, with what the page gets back. `parts`: for each part of the
    page's message what the model reads of it; None if that is nothing. `fields`: for each, its fields; of those that
    the model reads, the others. `message_fields`: the message's own fields."""
    if size_of(list(fields)) + size_of(dict(message_fields)) > MAX_PAGE_FIELDS_BYTES:
        fields = [{} for _ in fields]
        message_fields = {}
    kept: list[Part] = []
    part_fields: list[JsonValue] = []
    for place, (part, own_fields) in enumerate(zip(parts, fields, strict=True)):
        if part is not None and own_fields:
            kept.append(_with_extra(part, _PART, {protocol: dict(own_fields)}))
        elif part is not None:
            kept.append(part)
        elif own_fields:
            part_fields.append([place, dict(own_fields)])
    if not kept:
        return []
    about: dict[str, JsonValue] = {"id": message_id}
    if message_fields or part_fields:
        about[protocol] = {"fields": dict(message_fields), "others": part_fields}
    return [_with_extra(kept[0], _MESSAGE, about), *kept[1:]]


def with_message_id(parts: Sequence[Part], message_id: str) -> list[Part]:
    """The parts of a message that is sent once more, under another id."""
    if not parts or _MESSAGE not in parts[0].extra:
        return list(parts)
    return [_with_extra(parts[0], _MESSAGE, {**_as_dict(parts[0].extra[_MESSAGE]), "id": message_id}), *parts[1:]]


def page_id(message: Message) -> str:
    """The page's id for its message; empty if it came by another door."""
    message_id = _page_message(message).get("id")
    if not isinstance(message_id, str):
        return ""
    return message_id


def message_fields(protocol: Protocol, message: Message) -> dict[str, Any]:
    """The page's own fields of its message."""
    return _as_dict(_as_dict(_page_message(message).get(protocol)).get("fields"))


def part_fields(protocol: Protocol, part: Part) -> dict[str, Any]:
    """The page's own fields of a part of its message."""
    return _as_dict(_as_dict(part.extra.get(_PART)).get(protocol))


def with_other_parts(protocol: Protocol, parts: list[dict[str, Any]], message: Message) -> list[dict[str, Any]]:
    """The parts of a page's message, with those at their places that the model does not read."""
    others = _as_dict(_page_message(message).get(protocol)).get("others")
    for entry in others if isinstance(others, list) else ():
        match entry:
            case [int(place), dict(fields)]:
                parts.insert(place, fields)
            case _:
                pass
    return parts


def _page_message(message: Message) -> dict[str, Any]:
    return next((_as_dict(part.extra[_MESSAGE]) for part in message.parts if _MESSAGE in part.extra), {})


def _with_extra(part: Part, name: str, value: dict[str, JsonValue]) -> Part:
    return part.model_copy(update={"extra": {**part.extra, name: value}})


def _as_dict(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        return {}
    return dict(value)
