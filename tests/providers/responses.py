"""What is sent to the Responses API, and what it says."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from everturn.providers.openai_responses import encode
from everturn.records import Document, Image, Message, Text, ToolResult
from tests.providers import messages

request = partial(messages.request, model="openai:gpt-5.5")


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


def said(text: str, **fields: Any) -> dict[str, Any]:
    """A message item of a reply."""
    block = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [block], **fields}
