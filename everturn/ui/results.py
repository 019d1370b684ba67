"""A tool's result, as pages get it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from everturn.payloads import AskedAgent, WaitingCall
from everturn.records import Document, Image, Text, ToolCall, ToolResult
from everturn.text.browser_values import survives_browser
from everturn.text.json_text import json_text

WAITS_FOR: Final = "everturnWaitsFor"


def output_of(result: ToolResult) -> Any:
    """The tool's result: an object or a list if the text is JSON of one, else the text. A list of parts if there are
    pictures or files."""
    if all(isinstance(part, Text) for part in result.content):
        return _parse_output(result.text)
    return [_write_part(part) for part in result.content]


def _parse_output(text: str) -> Any:
    # A number or a quoted text stays a text: the tool may have meant it as words.
    if not text.startswith(("{", "[")):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def descriptor_of(waiting: WaitingCall) -> dict[str, Any]:
    """What a page may show beside a question. `exactArguments`: the arguments as
    text, if a browser would round one of them."""
    about: dict[str, Any] = {"why": waiting.why, "reason": waiting.reason, "expiresAt": waiting.expires_at}
    if not survives_browser(waiting.arguments):
        about["exactArguments"] = json_text(waiting.arguments)
    return {**about, **agents_of(waiting.path)}


def agents_of(path: Iterable[AskedAgent]) -> dict[str, Any]:
    """The agents that led to a sub-agent's call. Empty for a call of the conversation's own."""
    agents = [asked_agent.agent for asked_agent in path]
    return {"agents": agents} if agents else {}


def waits_below(calls: Iterable[ToolCall]) -> dict[str, Any]:
    """What a page shows as the output of an agent's call, until it has one: the calls below it that wait."""
    return {WAITS_FOR: [{"toolCallId": call.call_id, "tool": call.name} for call in calls]}


def is_waits_below(output: Any) -> bool:
    return isinstance(output, dict) and output.keys() == {WAITS_FOR}


def url_of(part: Image | Document) -> str:
    return part.url or f"data:{part.media_type};base64,{part.data}"


def _write_part(part: Text | Image | Document) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    return {"type": "file", "mediaType": media_type_of(part), "url": url_of(part)}


def media_type_of(part: Image | Document) -> str:
    if part.media_type:
        return part.media_type
    return "image/*" if isinstance(part, Image) else "application/octet-stream"
