"""Recorded traffic of Anthropic. The recordings live beside the repository, and are skipped without it."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from everturn.errors import InvalidReply, ModelNotFound
from everturn.models import Model, ModelSettings
from everturn.providers import failures
from everturn.providers.anthropic_messages import Assembler, decode, encode
from everturn.providers.base import Request, ToolSpec
from everturn.providers.catalog import resolve_endpoint
from everturn.records import Message, Opaque, Part, Reply, ServerToolUse, Text, Thinking, ToolCall, ToolResult
from tests.providers.recorded import assembled as assembled_by
from tests.providers.recorded import check_every_split, needs_recordings, recorded

pytestmark = needs_recordings


ALL = recorded("anthropic_messages")
REPLIES = {name: one for name, one in ALL.items() if one["response"]["status"] == 200}
WHOLE = {name: one for name, one in REPLIES.items() if "body" in one["response"]}
CHAINS = [name for name, one in WHOLE.items() if one.get("request") and one["turn"]]


def asked(*messages: Message, **options: Any) -> Request:
    return Request(model=Model("anthropic:claude-sonnet-4-5"), messages=messages or [Message.user("?")], **options)


def as_events(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A whole message as the API would have streamed it, in small pieces."""
    usage = message["usage"]
    yield {"type": "message_start", "message": message | {"content": [], "stop_reason": None, "usage": usage}}
    for index, block in enumerate(message["content"]):
        start, deltas = dict(block), []
        if block["type"] in {"text", "thinking"}:
            kind = block["type"]
            start[kind] = ""
            pieces = [block[kind][place : place + 40] for place in range(0, len(block[kind]), 40)]
            deltas += [{"type": f"{kind}_delta", kind: piece} for piece in pieces]
            deltas += [{"type": "citations_delta", "citation": one} for one in start.pop("citations", None) or []]
            if kind == "thinking":
                deltas.append({"type": "signature_delta", "signature": start["signature"]})
                start["signature"] = ""
        elif block["type"] in {"tool_use", "server_tool_use"}:
            text = json.dumps(block["input"]) if block["input"] else ""
            start["input"] = {}
            pieces = ["", *(text[place : place + 9] for place in range(0, len(text), 9))]
            deltas += [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
        yield {"type": "content_block_start", "index": index, "content_block": start}
        yield from ({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas)
        yield {"type": "content_block_stop", "index": index}
    ended = {name: message.get(name) for name in ("stop_reason", "stop_sequence", "container")}
    yield {"type": "message_delta", "delta": ended, "usage": {"output_tokens": usage["output_tokens"]}}
    yield {"type": "message_stop"}


def stream_of(one: dict[str, Any]) -> bytes:
    response = one["response"]
    if "sse" in response:
        return response["sse"].encode()  # type: ignore[no-any-return]
    events = response.get("events") or as_events(response["body"])
    return "".join(
        f"event: {event['type']}\ndata: {json.dumps(event, ensure_ascii=False)}\n\n" for event in events
    ).encode()


def assembled(*pieces: bytes) -> Reply:
    return assembled_by(Assembler, asked(), *pieces)


def read(one: dict[str, Any]) -> Reply:
    return decode(one["response"]["body"], asked()) if "body" in one["response"] else assembled(stream_of(one))


@pytest.mark.parametrize("name", WHOLE)
def test_a_recorded_reply_is_read_in_full(name: str) -> None:
    body, reply = WHOLE[name]["response"]["body"], read(WHOLE[name])
    blocks, usage = body["content"], body["usage"]
    assert reply.text == "".join(block["text"] for block in blocks if block["type"] == "text")
    assert [(call.call_id, call.name, call.arguments) for call in reply.tool_calls] == [
        (block["id"], block["name"], block["input"]) for block in blocks if block["type"] == "tool_use"
    ]
    cached = usage["cache_read_input_tokens"], usage["cache_creation_input_tokens"]
    assert (reply.usage.cached_tokens, reply.usage.cache_write_tokens) == cached
    assert reply.usage.input_tokens == usage["input_tokens"] + sum(cached)
    assert reply.usage.output_tokens == usage["output_tokens"]
    stops = {"end_turn": "end", "tool_use": "tool_calls", "pause_turn": "paused", "refusal": "refused"}
    assert reply.stop == stops[body["stop_reason"]]
    assert reply.response_id == body["id"]


@pytest.mark.parametrize(
    ("name", "text", "kinds", "stop"),
    [
        ("anth-stream-tool-calls.0.json", "", ["tool_call"], "tool_calls"),
        ("anth-redacted-thinking.0.json", None, ["opaque", "text"], "end"),
        (
            "anth-code-execution.0.json",
            None,
            ["thinking", "server_tool_use", "server_tool_use", "text", "opaque"],
            "end",
        ),
        ("response_only/anthropic-anthropic-fallback.stream.json", None, ["opaque", "text"], "end"),
        ("response_only/anthropic-anthropic-refusal.json", "", [], "refused"),
        ("response_only/anthropic-anthropic-tool-no-args.json", None, ["text", "tool_call"], "tool_calls"),
        ("response_only/anthropic-sdk-compaction_response.json", "Hello there!", ["opaque", "text"], "end"),
        ("response_only/anthropic-sdk-refusal_response.json", "", [], "refused"),
        (
            "response_only/anthropic-sdk-stream-a-toolrefusal.json",
            "Here's a summary of this year's solar eclipses and how",
            ["server_tool_use", "server_tool_use", "text"],
            "refused",
        ),
        ("response_only/anthropic-spliced-message-start.stream.json", "", ["thinking", "tool_call"], "tool_calls"),
    ],
)
def test_what_some_of_them_say(name: str, text: str | None, kinds: list[str], stop: str) -> None:
    reply = read(REPLIES[name])
    assert [part.kind for part in reply.message.parts] == kinds
    assert reply.stop == stop
    assert text is None or reply.text == text


def test_a_spliced_stream_is_its_last_message() -> None:
    reply = read(REPLIES["response_only/anthropic-spliced-message-start.stream.json"])
    assert reply.message.parts == (
        Thinking(text="Let me call the tool.", extra={"signature": "sig-second"}),
        ToolCall(call_id="toolu_second", name="test-tool", arguments={"value": "Sparkle Day"}),
    )
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (17, 65)


def test_blocks_that_come_in_pieces_of_other_kinds_are_whole() -> None:
    compaction = read(REPLIES["response_only/anthropic-sdk-compaction_response.json"]).message.parts[0]
    assert compaction == Opaque(
        data={
            "type": "compaction",
            "content": "Earlier conversation summarized.",
            "encrypted_content": "EpwBCioIDxgCEAEYASJALd_opaque_compaction_payload",
        }
    )
    searched = read(REPLIES["response_only/anthropic-sdk-stream-a-toolrefusal.json"])
    use, result = searched.message.parts[:2]
    assert isinstance(use, ServerToolUse)
    assert isinstance(use.data, dict)
    assert use.data["input"] == {"query": "solar eclipse viewing safety news 2026"}
    assert isinstance(result, ServerToolUse)
    assert result.name == "web_search"
    assert (searched.usage.input_tokens, searched.usage.reasoning_tokens) == (28, 67)


@pytest.mark.parametrize("name", REPLIES)
def test_a_line_separator_within_a_text_ends_no_line(name: str) -> None:
    data = stream_of(REPLIES[name])
    pattern = rb'("text_delta", ?"text": ?")(?=[^"])'
    raw, escaped = (re.sub(pattern, rb"\1" + mark, data) for mark in ("\u2028".encode(), rb"\\u2028"))
    assert assembled(raw) == assembled(escaped)
    assert (raw != data) == ("\u2028" in assembled(raw).text)


SMALL = [name for name in REPLIES if len(stream_of(REPLIES[name])) < 12_000]


@pytest.mark.parametrize("name", REPLIES)
def test_a_recorded_reply_is_the_same_streamed_and_split_anywhere(name: str) -> None:
    one = REPLIES[name]
    data, expected = stream_of(one), read(one)
    assert assembled(data) == expected
    for disturbed in (
        data.replace(b"\n", b"\r\n"),
        data.replace(b"\n\n", b'\n\n: hm\n\nevent: ping\ndata: {"type": "ping"}\n\n'),
    ):
        check_every_split(disturbed, assembled, expected)
    check_every_split(data, assembled, expected)


@pytest.mark.parametrize("name", SMALL)
def test_a_recorded_stream_that_stops_early_is_no_reply(name: str) -> None:
    data = stream_of(REPLIES[name])
    places = [place for place in range(len(data)) if data[place : place + 7] == b"\nevent:"]
    for place in [*places, *range(0, data.rindex(b"message_stop"), 50)]:
        with pytest.raises(InvalidReply) as raised:
            assembled(data[: place + 1])
        assert raised.value.retry


def records_of(message: dict[str, Any]) -> Iterator[Message]:
    """The records that the loop would hold for a recorded message."""
    if message["role"] == "assistant":
        body = {"content": message["content"], "usage": {}, "stop_reason": "end_turn"}
        yield decode(body, asked()).message
        return
    content = message["content"]
    results = [_result(block) for block in content if block["type"] == "tool_result"]
    if results:
        yield Message(role="tool", parts=tuple(results), provider="anthropic")
    parts: list[Part] = [Text(text=block["text"]) for block in content if block["type"] == "text"]
    if parts:
        yield Message.user(parts)


def _result(block: dict[str, Any]) -> ToolResult:
    content = block["content"]
    if isinstance(content, str):
        return ToolResult(call_id=block["tool_use_id"], content=(Text(text=content),))
    return ToolResult(call_id=block["tool_use_id"], extra={"content": content})


def benign(body: dict[str, Any]) -> dict[str, Any]:
    """The request without the differences that change nothing:

    - an instruction or a system text as a string, or as a list of one block;
    - cache_control, which the recorded client set at the top or not at all;
    - tool_choice auto, is_error false, an empty description, `stream: false` and nulls, which are the defaults;
    - max_tokens and thinking's budget, which are settings;
    - the `citations` of text blocks, which the recorded client lost, and we send back.
    """
    system = body.get("system") or ""
    messages = [
        {"role": message["role"], "content": [_plain(block) for block in message["content"]]}
        for message in body["messages"]
    ]
    tools = [
        {k: v for k, v in tool.items() if v not in (None, "") and k != "cache_control"}
        for tool in body.get("tools", [])
    ]
    return {
        "model": body["model"],
        "system": system if isinstance(system, str) else "".join(block["text"] for block in system),
        "messages": messages,
        "tools": tools,
    }


def _plain(block: dict[str, Any]) -> dict[str, Any]:
    dropped = {"cache_control", "citations"} if block["type"] == "text" else {"cache_control"}
    return {k: v for k, v in block.items() if k not in dropped and (k, v) != ("is_error", False)}


@pytest.mark.parametrize("name", CHAINS)
def test_what_was_read_goes_back_as_it_was_recorded(name: str) -> None:
    one = WHOLE[name]
    sent = one["request"]["body"]
    before = WHOLE.get(name.replace(".1.json", ".0.json"))
    transcript = [record for message in sent["messages"] for record in records_of(message)]
    if before and len(sent["messages"]) > 1:
        # What we read ourselves, with citations and all, in place of what the recorded client made of it.
        transcript[1] = decode(before["response"]["body"], asked()).message
    system = sent.get("system") or ""
    request = Request(
        model=Model(f"anthropic:{sent['model']}"),
        messages=transcript,
        instructions=system if isinstance(system, str) else system[0]["text"],
        tools=[
            ToolSpec(tool["name"], tool["description"], tool["input_schema"])
            for tool in sent.get("tools", [])
            if "input_schema" in tool
        ],
        raw_tools=[tool for tool in sent.get("tools", []) if "input_schema" not in tool],
        settings=ModelSettings(max_output_tokens=sent["max_tokens"], reasoning_effort=None, stream=False),
    )
    path, body = encode(request)
    assert path == "/v1/messages"
    assert benign(body) == benign(sent)
    if before:
        for text in opaque(before["response"]["body"]["content"]):
            assert len(sent["messages"]) == 1 or text in json.dumps(body, ensure_ascii=False)


def opaque(value: Any) -> Iterator[str]:
    """Signatures, and what else is encrypted."""
    if isinstance(value, dict):
        names = ("signature", "data", "encrypted_content", "encrypted_index", "encrypted_stdout")
        yield from (value[name] for name in names if isinstance(value.get(name), str))
        for inner in value.values():
            yield from opaque(inner)
    if isinstance(value, list):
        for inner in value:
            yield from opaque(inner)


def test_a_paused_reply_is_the_last_message_and_its_continuation_joins_it() -> None:
    first, second = (WHOLE[f"anth-pause-turn-web-search.{turn}.json"]["response"]["body"] for turn in (0, 1))
    paused = decode(first, asked()).message
    _, body = encode(asked(Message.user("?"), paused))
    assert [message["role"] for message in body["messages"]] == ["user", "assistant"]
    assert body["messages"][1]["content"] == first["content"]
    going_on = decode(second, asked(Message.user("?"), paused)).message
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, body = encode(asked(Message.user("?"), paused, going_on, Message.user("thanks")))
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]
    assert body["messages"][1]["content"] == first["content"] + second["content"]


def test_a_recorded_error_is_a_typed_one() -> None:
    response = ALL["anth-404-model.0.json"]["response"]
    endpoint = resolve_endpoint(Model("anthropic:m"), environ={"ANTHROPIC_API_KEY": "k"})
    body = json.dumps(response["body"]).encode()
    found = failures.of_response(endpoint, status=response["status"], headers=response["headers"], body=body)
    assert type(found) is ModelNotFound
    assert found.request_id == "req_011CdufXo8Y2LVfY2veyuQWG"
    assert "model: claude-sonet-4-5" in found.message
