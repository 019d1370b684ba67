"""Messages and requests that several providers' tests encode."""

from __future__ import annotations

from typing import Any

from everturn.models import Model, ModelSettings
from everturn.providers.base import Request
from everturn.records import Document, Image, Message, Part, Text, ToolResult


def request(*messages: Message, model: str, stream: bool = False, **options: Any) -> Request:
    settings = options.pop("settings", {})
    return Request(
        model=Model(model), messages=messages, settings=ModelSettings(**{"stream": stream, **settings}), **options
    )


def assistant(*parts: Part, provider: str = "") -> Message:
    return Message(role="assistant", parts=parts, provider=provider)


def results(*parts: ToolResult) -> Message:
    return Message(role="tool", parts=parts)


def result(call_id: str, *content: Text | Image | Document | str, is_error: bool = False) -> ToolResult:
    parts = tuple(Text(text=item) if isinstance(item, str) else item for item in content)
    return ToolResult(call_id=call_id, content=parts, is_error=is_error)
