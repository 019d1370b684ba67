"""Reads the messages, items and contents of the four protocols into records.

The decoder of each protocol reads the model's messages, as if they had just arrived. Those of users and tools are read
here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, takewhile
from typing import Any

from everturn.errors import InvalidReply
from everturn.formats.known_kinds import (
    ANTHROPIC_BLOCKS,
    ANTHROPIC_RESULT,
    CHAT_BLOCKS,
    CHAT_FIELDS,
    CHAT_SAYS,
    GEMINI_PARTS,
    RESPONSES_BLOCKS,
    check_fields,
    check_item_type,
    check_kinds,
    check_says,
)
from everturn.models import Model
from everturn.records import Message, Opaque, Part, Text, ToolResult, results_in
from everturn.vendor_calls import as_dict
from everturn.vendors.parts import anthropic_part, extra_beside, gemini_part, openai_part

Json = dict[str, Any]

_CHAT_ROLES = ("user", "system", "developer", "tool")
"""Of messages that are read here. An assistant's may have fields of its provider's own."""

_ENDS_CALLS = frozenset({"message", "function_call_output", "custom_tool_call_output"})
"""Items of Responses after which no earlier call still waits."""


def read_openai_chat(messages: Iterable[Any], *, provider: str) -> tuple[Message, ...]:
    from everturn.providers import openai_chat

    transcript: list[Message] = []
    for message in map(as_dict, messages):
        _check_blocks(message.get("content"), CHAT_BLOCKS, "a Chat message's content")
        if message.get("role") in _CHAT_ROLES:
            check_fields(message, CHAT_FIELDS, "a Chat message")
            check_says(message, frozenset({"content"}), "a Chat message")
        match message.get("role"):
            case "assistant":
                check_says(message, CHAT_SAYS, "an assistant's Chat message")
                body = {"choices": [{"message": message, "finish_reason": "stop"}]}
                calls = [as_dict(call) for call in message.get("tool_calls") or ()]
                custom = [{"type": "custom", **as_dict(call.get("custom"))} for call in calls if call.get("custom")]
                reply = _decode_message(openai_chat, body, provider, transcript, raw_tools=custom)
                expected_calls = len(message.get("tool_calls") or ()) or bool(message.get("function_call"))
                if len(reply.tool_calls) < expected_calls:
                    raise ValueError(f"an assistant's Chat message has a call that can't be read: {message!r:.200}")
                transcript.append(reply)
            case "tool":
                content = _result_parts(_read_content(message.get("content"), openai_part))
                _add_result(transcript, _answered_call(transcript, message.get("tool_call_id")), content)
            case "user" | "system" | "developer" as role:
                transcript.append(_to_message(role, _read_content(message.get("content"), openai_part), provider))
            case role:
                raise _unknown_error("a Chat message", "role", role)
    return tuple(transcript)


def read_openai_responses(items: Iterable[Any], *, provider: str) -> tuple[Message, ...]:
    given = [as_dict(item) for item in items]
    # A custom tool that was answered outside, or that the last reply waits for, is one of the caller's. xAI's server
    # calls its own searches so, and answers them itself.
    callers = {item.get("call_id") for item in given if item.get("type") == "custom_tool_call_output"}
    if provider != "xai":
        waits = takewhile(lambda item: item.get("type", "message") not in _ENDS_CALLS, reversed(given))
        callers |= {item.get("call_id") for item in waits}
    custom = [
        {"type": "custom", "name": item.get("name")}
        for item in given
        if item.get("type") == "custom_tool_call" and item.get("call_id") in callers
    ]
    transcript: list[Message] = []
    reply: list[Json] = []
    for item in given:
        check_item_type(item)
        kind = item.get("type", "message")
        role = item.get("role")
        if kind == "message":
            check_says(item, frozenset({"content"}), "a Responses message")
            _check_blocks(item.get("content"), RESPONSES_BLOCKS, "a Responses message's content")
        if kind == "message" and role != "assistant":
            _flush_items(transcript, reply, provider, custom)
            if role not in {"user", "system", "developer"}:
                raise _unknown_error("a Responses message", "role", role)
            transcript.append(_to_message(role, _read_content(item.get("content"), openai_part), provider))
        elif kind in {"function_call_output", "custom_tool_call_output"}:
            _flush_items(transcript, reply, provider, custom)
            parts = _read_content(item.get("output"), openai_part)
            unknown = any(isinstance(part, Opaque) for part in parts)  # such as a stored file
            extra = {"output": item["output"]} if unknown else {}
            call = _answered_call(transcript, item.get("call_id"))
            _add_result(transcript, call, _result_parts(parts), extra=extra, provider=provider)
        else:
            reply.append(item)
    _flush_items(transcript, reply, provider, custom)
    return tuple(transcript)


def read_anthropic(messages: Iterable[Any], *, provider: str) -> tuple[Message, ...]:
    from everturn.providers import anthropic_messages

    transcript: list[Message] = []
    for message in map(as_dict, messages):
        content = message.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())
        check_says(message, frozenset({"content"}), "an Anthropic message")
        check_kinds(map(as_dict, blocks), ANTHROPIC_BLOCKS, "an Anthropic block", ends=ANTHROPIC_RESULT)
        match message.get("role"):
            case "assistant":
                body = {"type": "message", "role": "assistant", "content": blocks, "stop_reason": "end_turn"}
                transcript.append(_decode_message(anthropic_messages, body, provider, transcript))
            case "user":
                user_parts: list[Part] = []
                for block in blocks:
                    if block.get("type") != "tool_result":
                        user_parts.append(anthropic_part(block))
                        continue
                    parts = _read_content(block.get("content"), anthropic_part)
                    call = _answered_call(transcript, block.get("tool_use_id"))
                    is_error = bool(block.get("is_error"))
                    extra = extra_beside(block, "type", "tool_use_id", "content", "is_error")
                    if any(isinstance(part, Opaque) for part in parts):  # a found tool, a stored file
                        extra["content"] = block["content"]
                    _add_result(transcript, call, _result_parts(parts), is_error, extra=extra, provider=provider)
                if user_parts:
                    transcript.append(_to_message("user", user_parts, provider))
            case "system":
                transcript.append(_to_message("system", _read_content(content, anthropic_part), provider))
            case role:
                raise _unknown_error("an Anthropic message", "role", role)
    return tuple(transcript)


def read_gemini(contents: Iterable[Any], *, provider: str) -> tuple[Message, ...]:
    from everturn.providers import gemini

    transcript: list[Message] = []
    for content in map(_to_camel, map(as_dict, contents)):
        parts = content.get("parts") or []
        check_says(content, frozenset({"parts"}), "a Gemini content")
        for part in parts:
            check_fields(part, GEMINI_PARTS, "a Gemini part")
        match content.get("role"):
            case "model" if all(part == {"text": ""} for part in parts):
                transcript.append(Message(role="assistant", parts=()))  # which nobody would give, and some send
            case "model":
                body = {"candidates": [{"content": content, "finishReason": "STOP"}]}
                transcript.append(_decode_message(gemini, body, provider, transcript))
            case "user" | "function" | None:
                user_parts = []
                for part in parts:
                    response = part.get("functionResponse")
                    if response is None:
                        user_parts.append(gemini_part(part))
                        continue
                    result, is_error = _gemini_result(response)
                    extra = extra_beside(response, "id", "name", "response", "parts")
                    if any("inlineData" not in inner for inner in response.get("parts") or ()):  # such as a stored file
                        extra["parts"] = response["parts"]
                    call = _answered_call(transcript, response.get("id"), response.get("name"))
                    _add_result(transcript, call, result, is_error, extra=extra, provider=provider)
                if user_parts:
                    transcript.append(_to_message("user", user_parts, provider))
            case role:
                raise _unknown_error("a Gemini content", "role", role)
    return tuple(transcript)


# ---------------------------------------------------------------- what a model said


def _decode_message(protocol: Any, body: Json, provider: str, before: Sequence[Message], **options: Any) -> Message:
    from everturn.providers.base import Request

    request = Request(model=Model(f"{provider}:any"), messages=before, **options)
    try:
        message: Message = protocol.decode(body, request).message
    except InvalidReply as error:
        raise ValueError(f"an assistant's message can't be read: {error.message}") from error
    return message


def _phase_extra(item: Json) -> Json:
    if not item.get("phase"):
        return {}
    return {"item": {"phase": item["phase"]}}


def _flush_items(transcript: list[Message], reply: list[Json], provider: str, custom: Sequence[Json]) -> None:
    """Adds the items of one reply as one message."""
    from everturn.providers import openai_responses
    from everturn.providers.base import Request, assistant_message

    parts: list[Part] = []
    for plain, items in groupby(reply, key=lambda item: isinstance(item.get("content"), str)):
        if plain:  # {"role": "assistant", "content": "..."}, which the API takes but never gives
            parts += [Text(text=item["content"], extra=_phase_extra(item)) for item in items]
        else:
            body = {"status": "completed", "output": list(items)}
            parts += _decode_message(openai_responses, body, provider, transcript, raw_tools=custom).parts
    if parts:
        transcript.append(assistant_message(parts, request=Request(model=Model(f"{provider}:any"), messages=())))
    reply.clear()


# ---------------------------------------------------------------- what users and tools said


def _to_message(role: str, parts: Sequence[Part], provider: str) -> Message:
    if not any(isinstance(part, Opaque) or part.extra for part in parts):
        provider = ""
    known = "user" if role == "user" else "system"
    return Message(role=known, parts=tuple(parts), provider=provider)


def _answered_call(transcript: Sequence[Message], wire_id: object, name: object = "") -> tuple[str, str]:
    """The call that a result belongs to: its call_id and name. Found by the id on the wire, else it is the next open
    call with that name."""
    answered = results_in(transcript)
    calls = [call for message in reversed(transcript) for call in message.tool_calls]
    for call in calls:
        if wire_id and str(wire_id) in {call.provider_id, call.call_id} and call.call_id not in answered:
            return call.call_id, call.name
    latest = next((message.tool_calls for message in reversed(transcript) if message.tool_calls), ())
    for call in latest:
        if not wire_id and call.call_id not in answered and call.name == name:
            return call.call_id, call.name
    return str(wire_id or name or "unknown"), str(name or "")


def _add_result(
    transcript: list[Message],
    call: tuple[str, str],
    content: Sequence[Part],
    is_error: bool = False,
    *,
    extra: Json | None = None,
    provider: str = "",
) -> None:
    """Adds a result to the message with the other results of the same reply, if there is one."""
    result = ToolResult(call_id=call[0], name=call[1], content=tuple(content), is_error=is_error, extra=extra or {})
    parts: list[Part] = [result]
    if not (extra or any(part.extra for part in content)):
        provider = ""
    if transcript and transcript[-1].role == "tool":
        others = transcript.pop()
        parts = [*others.parts, *parts]
        provider = provider or others.provider
    transcript.append(Message(role="tool", parts=tuple(parts), provider=provider))


def _result_parts(parts: Iterable[Part]) -> list[Part]:
    """The parts that a ToolResult can hold. Anything else becomes JSON text."""
    return [Text(text=_json_text(part.data)) if isinstance(part, Opaque) else part for part in parts]


def _check_blocks(content: Any, known: frozenset[str], what: str) -> None:
    """Raises ValueError if it has a block of an unknown kind, or is no content at all."""
    if content is None or isinstance(content, str):
        return
    blocks = content if isinstance(content, list | tuple) else [content]
    if strange := [block for block in blocks if not isinstance(block, str | Mapping)]:
        raise ValueError(f"{what} is of type {type(strange[0]).__name__}: {strange[0]!r:.80}")
    check_kinds((block for block in blocks if isinstance(block, Mapping)), known, what)


def _read_content(content: Any, read: Any) -> list[Part]:
    if content is None:
        return []
    if isinstance(content, str):
        return [Text(text=content)]
    if not isinstance(content, list):
        content = [content]
    return [read(block) if isinstance(block, dict) else Text(text=str(block)) for block in content]


def _gemini_result(response: Json) -> tuple[list[Part], bool]:
    """A functionResponse's content. We write it under `output` or `error`; other programs use other keys."""
    value = response.get("response")
    if not isinstance(value, dict):
        value = {}
    key = next((name for name in ("output", "error", "result", "return_value") if value.keys() == {name}), None)
    if key:
        value = value[key]
    text = value if isinstance(value, str) else _json_text(value)
    parts: list[Part] = [Text(text=text)]
    parts += _result_parts(gemini_part(part) for part in response.get("parts") or ())
    return parts, key == "error"


_SNAKE = {
    "function_call": "functionCall",
    "function_response": "functionResponse",
    "inline_data": "inlineData",
    "file_data": "fileData",
    "mime_type": "mimeType",
    "file_uri": "fileUri",
    "thought_signature": "thoughtSignature",
    "executable_code": "executableCode",
    "code_execution_result": "codeExecutionResult",
    "video_metadata": "videoMetadata",
    "tool_call": "toolCall",
    "tool_response": "toolResponse",
    "tool_type": "toolType",
}


def _to_camel(content: Json) -> Json:
    """A content with the field names of REST, where the SDK's dicts have Python's. What a tool returned stays as it
    is."""

    def rename_fields(value: Any) -> Any:
        if isinstance(value, list):
            return [rename_fields(item) for item in value]
        if not isinstance(value, dict):
            return value
        return {
            _SNAKE.get(name, name): item if name in {"args", "response"} else rename_fields(item)
            for name, item in value.items()
        }

    camel: Json = rename_fields(content)
    return camel


def _json_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _unknown_error(what: str, field: str, value: object) -> ValueError:
    return ValueError(f"{what} has {field}={value!r}, which is not a known one.")
