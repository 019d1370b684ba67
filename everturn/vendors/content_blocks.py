"""Content blocks as dicts, as the providers, MCP and LangChain have them: read into the parts that they mean."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from pydantic import TypeAdapter

from everturn.records import Document, Image, ResultPart, Text
from everturn.vendor_calls import as_dict
from everturn.vendors.parts import anthropic_part, gemini_part, media_part, openai_part

NO_OUTPUT = "(no output)"
"""The result of a tool that returns None, or an empty text. `null` reads like a failure after a tool that only acts,
and some providers refuse an empty text."""

FAILED = "It failed."
"""For a failure without a message."""

Json = dict[str, Any]

_TEXTS = frozenset({"text", "input_text", "output_text"})
_TYPES = _TEXTS | {"image", "image_url", "input_image", "document", "file", "input_file", "audio", "input_audio"}
_TYPES |= {"resource"}
_GEMINI = ("inlineData", "inline_data", "fileData", "file_data")
_BESIDE_TEXT = frozenset({"type", "text", "annotations", "cache_control", "citations", "logprobs", "_meta"})
_BESIDE_URL = frozenset({"type", "url", "mimeType", "mime_type", "media_type", "detail", "name", "id", "cache_control"})
_RESULT = frozenset({"content", "isError", "structuredContent", "_meta"})

_OWN: TypeAdapter[ResultPart] = TypeAdapter(ResultPart)


def parts_in(value: Any) -> list[Any] | None:
    """The parts in a block, a list of blocks or an MCP result. Items of a list that are no blocks stay as they are.

    None for a value that is something else: JSON, as far as we know.
    """
    if isinstance(value, list | tuple):
        parts = [part if (part := read_block(item)) is not None else item for item in value]
        if any(isinstance(part, Image | Document) for part in parts):
            return parts
        if parts and all(isinstance(part, Text) for part in parts):
            return parts
        return None
    if (part := read_block(value)) is not None:
        return [part]
    result = _block_fields(value, ("content", "isError"))
    if result.keys() <= _RESULT and isinstance(result.get("content"), list):
        if not result["content"] and isinstance(result.get("isError"), bool):
            if (structured := result.get("structuredContent")) is None:
                return []
            return [structured]
        return parts_in(result["content"])
    return None


def says_error(value: Any) -> bool:
    """Whether it is a result of MCP's that says so of itself."""
    return _block_fields(value, ("content", "isError")).get("isError") is True and parts_in(value) is not None


def read_block(value: Any) -> Text | Image | Document | None:
    """The part in a content block, a dict or an object of an SDK's; None for anything else."""
    if isinstance(value, Text | Image | Document):
        return value
    block = _block_fields(value, ("type", *_GEMINI))
    try:
        part = _read_fields(block)
    except ValueError:  # it looks like a block and is none: a picture without data, say
        return None
    if isinstance(part, Text | Image | Document):
        return part
    return None


def _block_fields(value: Any, marks: tuple[str, ...]) -> Json:
    """A mapping's, and of other objects only those of an SDK's that have one of the marks. Empty for anything else."""
    if isinstance(value, dict):
        return value
    if isinstance(value, Mapping):
        return dict(value)
    is_sdks = hasattr(value, "model_dump") and not isinstance(value, type)
    if is_sdks and any(getattr(value, mark, None) is not None for mark in marks):
        return as_dict(value)
    return {}


def _read_fields(block: Json) -> Any:
    kind = block.get("type")
    if isinstance(block.get("kind"), str) and "type" not in block:  # our own, as JSON
        if block["kind"] not in {"image", "document"}:
            return None
        return _OWN.validate_python(block)
    if any(isinstance(block.get(name), Mapping) for name in _GEMINI) and "type" not in block:
        camel = {"inline_data": "inlineData", "file_data": "fileData", "mime_type": "mimeType", "file_uri": "fileUri"}
        return gemini_part(
            {camel.get(name, name): _rename_fields(inner, camel) for name, inner in block.items() if inner is not None}
        )
    if not isinstance(kind, str) or kind not in _TYPES:
        return None
    if kind in _TEXTS:
        text = block.get("text")
        if not isinstance(text, str) or not block.keys() <= _BESIDE_TEXT:
            return None
        return Text(text=text)
    if kind == "resource":
        return _resource_part(block.get("resource"))
    if kind == "input_audio" and isinstance(audio := block.get("input_audio"), Mapping):
        return media_part(f"audio/{audio.get('format') or 'wav'}", data=_text_field(audio, "data"))
    if isinstance(block.get("source"), Mapping):
        return anthropic_part(block)
    return _flat_part(block, kind) or openai_part(block)


def _flat_part(block: Json, kind: str) -> Image | Document | None:
    """MCP's `{"type": "image", "data", "mimeType"}`, and LangChain's with `base64`, `mime_type` or `url`."""
    data = _text_field(block, "data", "base64")
    url = _text_field(block, "url")
    media_type = _text_field(block, "mimeType", "mime_type", "media_type")
    if data and media_type:
        name = "" if kind == "image" else _text_field(block, "name", "filename")
        return _named_medium(media_type, data, name=name or "")
    if url and kind == "image" and block.keys() <= _BESIDE_URL:
        return Image(url=url, media_type=media_type)
    return None


def _resource_part(resource: Any) -> Text | Image | Document | None:
    """MCP's embedded resource."""
    if not isinstance(resource, Mapping):
        return None
    if isinstance(resource.get("text"), str):
        return Text(text=resource["text"])
    media_type = _text_field(resource, "mimeType") or "application/octet-stream"
    name = PurePosixPath(urlsplit(str(resource.get("uri"))).path).name
    return _named_medium(media_type, _text_field(resource, "blob"), name=name)


def _named_medium(media_type: str, data: str | None, *, name: str) -> Image | Document:
    """An Image has no name."""
    if not name or media_type.lower().startswith("image/"):
        return media_part(media_type, data=data)
    return media_part(media_type, data=data, name=name)


def _text_field(fields: Mapping[str, Any], *names: str) -> str | None:
    return next((value for name in names if isinstance(value := fields.get(name), str) and value), None)


def _rename_fields(value: Any, names: Mapping[str, str]) -> Any:
    if not isinstance(value, Mapping):
        return value
    return {names.get(name, name): inner for name, inner in value.items()}
