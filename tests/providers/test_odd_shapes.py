"""Whatever stands in a field of a reply, it is read or it is a typed error, and what was read can be sent again.

An exception that nobody thought of would be tried, and paid for, again and again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from everturn.errors import InvalidReply
from everturn.http.sse import Event
from everturn.models import Model, ModelSettings
from everturn.payloads import ModelReply
from everturn.providers import openai_chat
from everturn.providers.base import Request
from everturn.providers.catalog import row_of
from everturn.providers.failures import ErrorInReply
from everturn.providers.http import WireProtocol, ask, protocol_by_name
from everturn.providers.json_values import write_json
from everturn.records import Message, Reply, Text, ToolResult
from everturn.storage.data_converter import data_converter
from everturn.testing import ScriptedModel

Chunk = dict[str, Any]

ODD = [None, -1, 1e300, True, "", "\ud800", [], {}, [None], [5], {"a": [1]}, [{"type": [], "text": 5}]]

_USES = [
    {"type": "thinking", "thinking": "Hm.", "signature": "s"},
    {"type": "server_tool_use", "id": "st", "name": "web_search", "input": {"query": "x"}},
    {"type": "web_search_tool_result", "tool_use_id": "st", "content": [{"type": "web_search_result", "url": "u"}]},
    {"type": "text", "text": "Hi.", "citations": [{"type": "x", "url": "u"}]},
    {"type": "fallback", "from": {"model": "c"}, "to": {"model": "b"}},
    {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Paris"}},
]
_CLAUDE_USAGE = {
    "input_tokens": 1,
    "cache_creation": {"ephemeral_1h_input_tokens": 1},
    "output_tokens_details": {"thinking_tokens": 1},
    "server_tool_use": {"web_search_requests": 1},
    "iterations": [{"type": "advisor_message", "model": "b", "input_tokens": 1}],
    "service_tier": "standard",
    "speed": "fast",
    "inference_geo": "us",
}
_CLAUDE = {"id": "m", "model": "c", "usage": _CLAUDE_USAGE}
_CLAUDE_END = {"stop_reason": "tool_use", "stop_details": {"a": 1}, "container": {"id": "c", "expires_at": "x"}}
_ITEMS = [
    {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "Hm."}], "encrypted_content": "e"},
    {"type": "message", "id": "m", "role": "assistant", "content": [{"type": "output_text", "text": "Hi."}]},
    {"type": "web_search_call", "id": "w", "status": "completed", "action": {"type": "search"}},
    {"type": "function_call", "id": "f", "call_id": "c1", "name": "weather", "arguments": "{}", "status": "completed"},
]
_RESPONSE = {"id": "r", "status": "completed", "error": None, "incomplete_details": None, "output": _ITEMS}
_RESPONSE |= {"usage": {"input_tokens": 1, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 1}}}
_SAID = {
    "role": "assistant",
    "content": "Hi.",
    "reasoning_content": "Hm.",
    "reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "Hm.", "signature": "s"}],
    "tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}],
    "annotations": [{"type": "x"}],
    "images": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}],
    "audio": {"id": "a", "data": "AAAA", "transcript": "x", "expires_at": 1},
    "executed_tools": [{"index": 0, "type": "search"}],
}
_LOGPROBS = {"content": [{"token": "x"}]}
_CHAT = {"id": "r", "model": "m", "service_tier": "flex", "usage": {"prompt_tokens": 1, "completion_tokens": 2}}
_PARTS = [
    {"text": "Hm.", "thought": True},
    {"text": "Hi.", "thoughtSignature": "s"},
    {"executableCode": {"code": "1"}},
    {"codeExecutionResult": {"output": "1"}},
    {"inlineData": {"mimeType": "image/png", "data": "AAAA"}},
    {"functionCall": {"id": "c1", "name": "weather", "args": {"city": "Paris"}}, "thoughtSignature": "s"},
]
_CANDIDATE = {
    "content": {"role": "model", "parts": _PARTS},
    "finishReason": "STOP",
    "index": 0,
    "safetyRatings": [{"category": "x"}],
    "logprobsResult": {"chosenCandidates": [{"token": "x"}]},
    "avgLogprobs": -0.1,
    "groundingMetadata": {"webSearchQueries": ["x"]},
}
_GEMINI = {"candidates": [_CANDIDATE], "responseId": "r", "modelVersion": "m", "usageMetadata": {"promptTokenCount": 1}}

WHOLE: dict[str, Chunk] = {
    "anthropic:claude-opus-5": {**_CLAUDE, "content": _USES, **_CLAUDE_END},
    "openai:gpt-5.5": _RESPONSE,
    "openai-chat:gpt-5.5": {
        **_CHAT,
        "choices": [{"index": 0, "message": _SAID, "finish_reason": "tool_calls", "logprobs": _LOGPROBS}],
    },
    "google:gemini-3-pro": _GEMINI,
}
STREAMED: dict[str, list[Chunk]] = {
    "anthropic:claude-opus-5": [
        {"type": "message_start", "message": _CLAUDE},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi."}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "citations_delta", "citation": {"url": "u"}}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "id": "t", "name": "w"}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "{}"}},
        {"type": "message_delta", "delta": _CLAUDE_END, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    ],
    "openai:gpt-5.5": [
        {"type": "response.output_item.added", "output_index": 0, "item": {"type": "message", "content": []}},
        {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "Hi."},
        {"type": "response.output_item.done", "output_index": 1, "item": _ITEMS[3]},
        {"type": "response.completed", "response": {**_RESPONSE, "output": []}},
    ],
    "openai-chat:gpt-5.5": [
        {**_CHAT, "choices": [{"index": 0, "delta": _SAID, "logprobs": _LOGPROBS}]},
        {**_CHAT, "choices": [{"index": 0, "delta": _SAID, "logprobs": _LOGPROBS}]},
        {**_CHAT, "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
    ],
    "google:gemini-3-pro": [_GEMINI, _GEMINI],
}


def protocol_of(model: str) -> WireProtocol:
    return protocol_by_name(row_of(Model(model).provider).protocol)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in items:
        yield from places(inner, (*path, name))


def put(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copied = dict(value) if isinstance(value, dict) else list(value)
    copied[path[0]] = put(copied[path[0]], path[1:], new)
    return copied


def asking(model: str, *messages: Message) -> Request:
    settings = ModelSettings(stream=False)
    return Request(model=Model(model), messages=messages or [Message.user("?")], settings=settings)


def read_stream(model: str, events: list[Chunk]) -> Reply:
    assembler = protocol_of(model).Assembler(asking(model))
    for event in [*map(json.dumps, events), "[DONE]"]:
        assembler.feed(Event(event))
    return assembler.finish()


def check_what_becomes_of(reply: Reply, model: str, checked: set[str]) -> None:
    """It crosses to the workflow, and goes out in the next request, to whatever provider. Much that is odd is passed
    over, and leaves the reply as it was: that is checked once."""
    if (written := repr(reply)) in checked:
        return
    checked.add(written)
    crossing = ModelReply(message=reply.message, digest="d", usage=reply.usage, details=reply.details)
    converter = data_converter.payload_converter
    (back,) = converter.from_payloads(converter.to_payloads([crossing]), [ModelReply])
    assert back.message == reply.message
    answered = [
        ToolResult(call_id=call.call_id, name=call.name, content=(Text(text="r"),)) for call in reply.tool_calls
    ]
    said = [Message.user("?"), reply.message, Message(role="tool", parts=tuple(answered)), Message.user("Go on")]
    for asked in (model, "anthropic:claude-opus-5", "openai:gpt-5.5"):
        json.loads(write_json(protocol_of(asked).encode(replace(asking(model), model=Model(asked), messages=said))[1]))


@pytest.mark.parametrize("model", WHOLE)
def test_whatever_is_in_a_field_of_a_whole_reply(model: str) -> None:
    checked = set[str]()
    for path in places(WHOLE[model]):
        for odd in ODD:
            try:
                reply = protocol_of(model).decode(put(WHOLE[model], path, odd), asking(model))
            except (InvalidReply, ErrorInReply):
                continue
            except Exception as error:
                raise AssertionError(f"{odd!r} at {path}") from error
            check_what_becomes_of(reply, model, checked)


@pytest.mark.parametrize("model", STREAMED)
def test_whatever_is_in_a_field_of_an_event(model: str) -> None:
    checked = set[str]()
    for path in places(STREAMED[model]):
        for odd in ODD:
            try:
                reply = read_stream(model, put(STREAMED[model], path, odd))
            except (InvalidReply, ErrorInReply):
                continue
            except Exception as error:
                raise AssertionError(f"{odd!r} at {path}") from error
            check_what_becomes_of(reply, model, checked)


async def test_a_fault_of_ours_in_reading_is_a_reply_that_can_not_be_read(
    scripted: Callable[..., ScriptedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unthought(*_: object) -> Reply:
        raise KeyError("choices")

    monkeypatch.setattr(openai_chat, "decode", unthought)
    monkeypatch.setattr(openai_chat.Assembler, "finish", unthought)
    for stream in (True, False):
        model = Model("scripted:demo", base_url=scripted(["Hello."]).base_url)
        with pytest.raises(InvalidReply, match="KeyError: 'choices'"):
            await ask(Request(model=model, messages=[Message.user("?")], settings=ModelSettings(stream=stream)))
