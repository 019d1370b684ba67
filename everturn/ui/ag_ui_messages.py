"""A conversation so far as AG-UI's messages, for a client that reconnects."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from everturn import events
from everturn.declared_tools import said_by_person
from everturn.events import Event
from everturn.records import Document, Image, Message, Text, ToolCall, ToolResult, results_in
from everturn.ui.chats import OWN_ID
from everturn.ui.results import url_of

AgUiMessage = dict[str, Any]


def ag_ui_messages(transcript: Sequence[Message], so_far: Sequence[Event]) -> list[AgUiMessage]:
    """`so_far`: the events of the current answer, whose results the transcript may not have yet."""
    results = results_in(transcript) | {
        one.result.call_id: one.result for one in so_far if isinstance(one, events.ToolFinished)
    }
    messages: list[AgUiMessage] = []
    for position, message in enumerate(transcript):
        about = {"id": f"{OWN_ID}{position}", "role": message.role}
        if message.role == "assistant" and not message.summary:
            messages.append({**about, "content": message.text, **_calls(message)})
            known = [results[call.call_id] for call in message.tool_calls if call.call_id in results]
            messages += [
                {"id": result_id(one), "role": "tool", "toolCallId": one.call_id, "content": content_of(one)}
                for one in known
            ]
        elif message.role == "user" and not message.author:
            messages.append({**about, "content": _parts(said_by_person(message))})
    if not any(isinstance(one, events.TurnStarted) for one in so_far):  # no turn has read the last message yet
        said = [_parts(said_by_person(one.message)) for one in so_far if isinstance(one, events.MessageReceived)][:1]
        last = messages[-1]["content"] if messages else None
        messages += [{"id": f"{OWN_ID}last", "role": "user", "content": one} for one in said if one != last]
    return messages


def result_id(result: ToolResult) -> str:
    return f"result-{result.call_id}"


def content_of(result: ToolResult) -> Any:
    return _parts(result.content)


def arguments_of(call: ToolCall) -> str:
    return json.dumps(call.arguments, ensure_ascii=False)


def _calls(message: Message) -> dict[str, Any]:
    calls = [
        {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": arguments_of(call)}}
        for call in message.tool_calls
    ]
    return {"toolCalls": calls} if calls else {}


def _parts(parts: Sequence[Any]) -> Any:
    """One text if all parts are texts, else a list."""
    if all(isinstance(part, Text) for part in parts):
        return "".join(part.text for part in parts)
    return [_part(part) for part in parts if isinstance(part, Text | Image | Document)]


def _part(part: Text | Image | Document) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    if part.data is not None:
        source = {"type": "data", "value": part.data, "mimeType": part.media_type}
    else:
        source = {"type": "url", "value": url_of(part), **({"mimeType": part.media_type} if part.media_type else {})}
    return {"type": part.kind, "source": source}
