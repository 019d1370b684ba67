"""What a tool gave, as pages are told it."""

from __future__ import annotations

import json
from typing import Any

from everturn.records import Document, Image, Text, ToolResult


def output_of(result: ToolResult) -> Any:
    """The result as the tool gave it: an object or a list if it is the JSON of one, else its text. With pictures or
    files, a list of parts."""
    if all(isinstance(part, Text) for part in result.content):
        return _as_json(result.text)
    return [_part(part) for part in result.content]


def _as_json(text: str) -> Any:
    # A number or a quoted text may just as well be what the tool says in words.
    if not text.startswith(("{", "[")):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def url_of(part: Image | Document) -> str:
    return part.url or f"data:{part.media_type};base64,{part.data}"


def _part(part: Text | Image | Document) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    return {"type": "file", "mediaType": media_type_of(part), "url": url_of(part)}


def media_type_of(part: Image | Document) -> str:
    return part.media_type or ("image/*" if isinstance(part, Image) else "application/octet-stream")
