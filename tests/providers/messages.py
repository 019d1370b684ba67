"""Messages that several providers' tests encode."""

from __future__ import annotations

from everturn.records import Document, Image, Message, Part, Text, ToolResult


def assistant(*parts: Part, provider: str = "") -> Message:
    return Message(role="assistant", parts=parts, provider=provider)


def results(*parts: ToolResult) -> Message:
    return Message(role="tool", parts=parts)


def result(call_id: str, *content: Text | Image | Document | str, is_error: bool = False) -> ToolResult:
    parts = tuple(Text(text=item) if isinstance(item, str) else item for item in content)
    return ToolResult(call_id=call_id, content=parts, is_error=is_error)
