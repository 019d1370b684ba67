"""Reads a transcript in any of the four formats, or in Messages. A format is recognised by fields that no other format
has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from everturn.formats.readers import read_anthropic, read_gemini, read_openai_chat, read_openai_responses
from everturn.records import Message, Reply
from everturn.text.shortening import clipped
from everturn.validation.explaining import explain
from everturn.vendor_calls import as_dict

_RESPONSES_BLOCKS = frozenset({"input_text", "output_text", "input_image", "input_file", "refusal"})
_ANTHROPIC_BLOCKS = frozenset({"tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use"})
_CHAT_BLOCKS = frozenset({"image_url", "input_audio", "file"})
_CHAT_FIELDS = frozenset({"tool_calls", "tool_call_id", "function_call"})


def read_any(given: Iterable[Any]) -> tuple[Message, ...]:
    """The messages in `given`: Messages and Replies, as records or as their JSON, or the messages, items or contents of
    OpenAI Chat, Responses, Anthropic or Gemini, as dicts or as the SDKs' objects.

    Raises ValueError for a mixture of formats, and for anything else. If the format can't be recognised,
    `everturn.formats` has a reader for each one.
    """
    items = list(given)
    if any(isinstance(item, Message | Reply) or _is_record(item) for item in items):
        return tuple(map(_to_message, range(len(items)), items))
    entries = [as_dict(item) for item in items]
    for place, item in enumerate(entries):
        if not item.keys() & {"role", "type", "parts"}:
            raise ValueError(
                f"its item {place} is {_shorten(items[place])}, which is not a message in any known format"
            )
    if any("parts" in item for item in entries):
        return read_gemini(entries, provider="google")
    if any(
        "role" not in item or item.get("type") not in (None, "message") or _has_field(item, "id") for item in entries
    ):
        return read_openai_responses(entries, provider="openai")
    blocks = {str(block.get("type")) for item in entries for block in _blocks_in(item)}
    if blocks & _RESPONSES_BLOCKS:
        return read_openai_responses(entries, provider="openai")
    is_chat = any(item.get("role") in ("tool", "developer") or item.keys() & _CHAT_FIELDS for item in entries)
    if not (is_chat or blocks & _CHAT_BLOCKS) and (blocks & _ANTHROPIC_BLOCKS or _has_source(entries)):
        return read_anthropic(entries, provider="anthropic")
    return read_openai_chat(entries, provider="openai-chat")


def _to_message(place: int, item: Any) -> Message:
    if isinstance(item, Message):
        return item
    if isinstance(item, Reply):
        return item.message
    if not isinstance(item, Mapping):
        raise ValueError(f"its item {place} is {_shorten(item)}, not a Message")
    try:
        return Message.model_validate(item)
    except ValueError as error:
        raise ValueError(f"its item {place} is not a Message: {explain(error)}") from None


def _is_record(item: Any) -> bool:
    """A Message, written as JSON. Its parts have a `kind`."""
    if not isinstance(item, Mapping):
        return False
    parts = item.get("parts")
    return isinstance(parts, list | tuple) and any(isinstance(part, Mapping) and "kind" in part for part in parts)


def _blocks_in(item: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    content = item.get("content")
    if not isinstance(content, list):
        return []
    return [block for block in content if isinstance(block, Mapping)]


def _has_field(item: Mapping[str, Any], field: str) -> bool:
    """A message of Responses' `output`: no other format has both a type and an id."""
    return item.get("type") == "message" and field in item and not item.keys() & {"stop_reason", "model"}


def _has_source(entries: Iterable[Mapping[str, Any]]) -> bool:
    return any("source" in block for item in entries for block in _blocks_in(item))


def _shorten(item: Any) -> str:
    return clipped(repr(item), 80)
