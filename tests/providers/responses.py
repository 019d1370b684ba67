"""What is sent to the Responses API."""

from __future__ import annotations

import json
from typing import Any

from everturn.models import Model, ModelSettings
from everturn.providers.base import Request
from everturn.providers.openai_responses import encode
from everturn.records import Document, Image, Message, Text, ToolResult


def request(*messages: Message, model: str = "openai:gpt-5.5", stream: bool = False, **options: Any) -> Request:
    settings = options.pop("settings", {})
    return Request(
        model=Model(model), messages=messages, settings=ModelSettings(**{"stream": stream, **settings}), **options
    )


def body_of(*messages: Message, **options: Any) -> dict[str, Any]:
    path, body = encode(request(*messages, **options))
    assert path == "/responses"
    assert json.loads(json.dumps(body)) == body
    return body


def sent(*messages: Message, **options: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = body_of(*messages, **options)["input"]
    return found


def result(call_id: str, *content: Text | Image | Document | str, is_error: bool = False) -> Message:
    parts = tuple(Text(text=item) if isinstance(item, str) else item for item in content)
    return Message(role="tool", parts=(ToolResult(call_id=call_id, content=parts, is_error=is_error),))
