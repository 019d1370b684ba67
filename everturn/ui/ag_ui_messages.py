"""A conversation so far as AG-UI's messages, for a client that reconnects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from everturn import events
from everturn.client.followed_reply import FollowedReply
from everturn.declared_tools import said_by_person
from everturn.records import Document, Image, Message, Part, Text, Thinking, ToolCall, ToolResult, on_lines, results_in
from everturn.text.json_text import json_text
from everturn.ui.ag_ui_request import ProtocolVersion
from everturn.ui.message_ids import reply_id, thinking_id, user_message_id
from everturn.ui.narrator import CallMade, calls_below, held_call_ids
from everturn.ui.page_fields import message_fields, part_fields
from everturn.ui.results import media_type_of, url_of

AgUiMessage = dict[str, Any]


def ag_ui_messages(transcript: Sequence[Message], answer: FollowedReply, version: ProtocolVersion) -> list[AgUiMessage]:
    """Each message has the id that it has in the stream: a client keeps the messages that it knows where they are, and
    puts the others after them."""
    results = results_in(transcript) | {
        event.result.call_id: event.result for event in answer.events if isinstance(event, events.ToolFinished)
    }
    below = calls_below(answer.events)
    held = held_call_ids(answer.events)
    messages: list[AgUiMessage] = []
    for position, message in enumerate(transcript):
        if message.role == "assistant" and not message.summary:
            messages += _thoughts_of(message, position)
            calls = [call for call in _calls_of(message, below) if call.call_id not in held]
            messages.append(
                {"id": reply_id(position), "role": "assistant", "content": message.text, **_calls_field(calls)}
            )
            known = [results.get(call.call_id) or answer.result_of(call) for call in calls]
            messages += [_tool_message(result, version) for result in known if result]
        elif message.role == "user" and not message.author:
            messages.append(_user_message(message, position))
    return [*messages, *_untaken_messages(transcript, answer)]


def result_id(result: ToolResult) -> str:
    return f"result-{result.call_id}"


def content_of(result: ToolResult, version: ProtocolVersion) -> Any:
    """Parts are of 1.0: to a client of 0.x, a result is a text, and a list is an error of the whole run."""
    if version == "0" and not all(isinstance(part, Text) for part in result.content):
        return "\n".join(map(_in_words, result.content))
    return _content_of_parts(result.content)


def arguments_of(call: ToolCall) -> str:
    return json_text(call.arguments)


def _untaken_messages(transcript: Sequence[Message], answer: FollowedReply) -> list[AgUiMessage]:
    """What people said and no turn has read yet. The newest may be on its way to the conversation itself, too."""
    messages = list(answer.untaken_messages)
    if not any(isinstance(event, events.TurnStarted) for event in answer.events):
        received = next((event.message for event in answer.events if isinstance(event, events.MessageReceived)), None)
        last_said = [*[message for message in transcript if message.role == "user"], *messages][-1:]
        if received and [message.parts for message in last_said] != [received.parts]:
            messages.append(received)
    return [_user_message(message, f"next-{number}") for number, message in enumerate(messages)]


def _thoughts_of(message: Message, position: int) -> list[AgUiMessage]:
    thoughts = "".join(part.text for part in message.parts if isinstance(part, Thinking))
    if not thoughts:
        return []
    return [{"id": thinking_id(position), "role": "reasoning", "content": thoughts}]


def _user_message(message: Message, position: int | str) -> AgUiMessage:
    about = {**message_fields("ag-ui", message), "id": user_message_id(message, position), "role": "user"}
    return {**about, "content": _content_of_parts(said_by_person(message))}


def _tool_message(result: ToolResult, version: ProtocolVersion) -> AgUiMessage:
    about = {"id": result_id(result), "role": "tool", "toolCallId": result.call_id}
    return {**about, "content": content_of(result, version)}


def _calls_of(message: Message, below: dict[str, list[CallMade]]) -> list[ToolCall]:
    """The message's calls, each with the calls of sub-agents that it led to."""
    calls: list[ToolCall] = []
    for call in message.tool_calls:
        calls += [call, *(called.call for called in below.get(call.call_id, []))]
    return calls


def _calls_field(calls: Sequence[ToolCall]) -> dict[str, Any]:
    written = [
        {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": arguments_of(call)}}
        for call in calls
    ]
    return {"toolCalls": written} if written else {}


def _content_of_parts(parts: Sequence[Part]) -> Any:
    """One text if all parts are texts, and have nothing else; else a list."""
    if all(isinstance(part, Text) and not part_fields("ag-ui", part) for part in parts):
        return on_lines([part.text for part in parts if isinstance(part, Text)])
    return [_write_part(part) for part in parts if isinstance(part, Text | Image | Document)]


def _write_part(part: Text | Image | Document) -> dict[str, Any]:
    if isinstance(part, Text):
        return {**part_fields("ag-ui", part), "type": "text", "text": part.text}
    if part.data is not None:
        source = {"type": "data", "value": part.data, "mimeType": part.media_type}
    else:
        source = {"type": "url", "value": url_of(part)}
        if part.media_type:
            source["mimeType"] = part.media_type
    return {**part_fields("ag-ui", part), "type": _kind_of(part), "source": source}


def _kind_of(part: Image | Document) -> str:
    kind = media_type_of(part).partition("/")[0]
    if kind in ("audio", "video"):
        return kind
    return part.kind


def _in_words(part: Text | Image | Document) -> str:
    if isinstance(part, Text):
        return part.text
    name = part.name if isinstance(part, Document) else ""
    return f"[{part.kind}: {part.url or name or media_type_of(part)}]"
