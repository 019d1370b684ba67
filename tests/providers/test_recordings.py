"""Recorded traffic of real providers. The recordings live beside the repository, and are skipped without it."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import Any

import pytest

from everturn.errors import InvalidReply, ProviderError, RateLimited
from everturn.models import Model
from everturn.providers import failures
from everturn.providers.base import Request
from everturn.providers.catalog import PROVIDERS, resolve_endpoint
from everturn.providers.openai_chat import Assembler, decode, encode
from everturn.records import Image, Message, Reply, Text, ToolResult
from tests.providers.drawn import unmarked
from tests.providers.recorded import assembled as assembled_by
from tests.providers.recorded import check_every_split, needs_recordings, recorded

pytestmark = needs_recordings


MARKS = "\u2028".encode(), rb"\\u2028"
"""The line separator, as it is and as an escape (twice escaped, for a pattern)."""

ALL = recorded("openai_chat")
REPLIES = {name: one for name, one in ALL.items() if one["response"]["status"] == 200}
WHOLE = {name: one for name, one in REPLIES.items() if "body" in one["response"]}
STREAMS = {name: one for name, one in REPLIES.items() if "body" not in one["response"]}
CHAINS = [name for name, one in WHOLE.items() if one.get("request") and one["turn"]]


def asked(one: dict[str, Any]) -> Request:
    provider = one["provider"] if one["provider"] in PROVIDERS else "openai-chat"
    return Request(model=Model(f"{provider}:m"), messages=[Message.user("?")])


def stream_of(one: dict[str, Any]) -> bytes:
    response = one["response"]
    if "sse" in response:
        return response["sse"].encode()  # type: ignore[no-any-return]
    events = [*map(json.dumps, response["events"]), "[DONE]"]
    return "".join(f"data: {event}\n\n" for event in events).encode()


def assembled(one: dict[str, Any], *pieces: bytes) -> Reply:
    return assembled_by(Assembler, asked(one), *pieces)


def read(one: dict[str, Any]) -> Reply:
    return (
        assembled(one, stream_of(one)) if "body" not in one["response"] else decode(one["response"]["body"], asked(one))
    )


def chunks_of(one: dict[str, Any]) -> list[dict[str, Any]]:
    """What came, by a plain reading: the whole body, or each event's JSON."""
    if "body" in one["response"]:
        return [one["response"]["body"]]
    lines = stream_of(one).decode().split("\n")
    return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]


@pytest.mark.parametrize("name", REPLIES)
def test_a_recorded_reply_is_read_in_full(name: str) -> None:
    one = REPLIES[name]
    reply, chunks = read(one), chunks_of(one)
    messages = [choice.get("message") or choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    texts = [message["content"] for message in messages if isinstance(message.get("content"), str)]
    names = [
        entry["function"]["name"]
        for message in messages
        for entry in message.get("tool_calls") or []
        if entry["function"].get("name")
    ]
    usages = [chunk["usage"] for chunk in chunks if chunk.get("usage")]
    assert "".join(texts) in reply.text
    assert [call.name for call in reply.tool_calls] == names
    assert all(call.unparsed is None and call.call_id for call in reply.tool_calls)
    assert reply.stop == ("tool_calls" if names else "end")
    assert reply.usage.input_tokens == (usages[-1]["prompt_tokens"] if usages else 0)
    assert reply.usage.output_tokens >= (usages[-1]["completion_tokens"] if usages else 0)


@pytest.mark.parametrize(
    ("name", "text", "calls", "thinking"),
    [
        (
            "chat-deepseek-reasoning-tools.1.json",
            "Let me get your name and roll the die!",
            ["get_player_name", "roll_dice"],
            "Great, now I",
        ),
        ("chat-hf-stream.0.json", "Paris", [], ""),
        ("chat-llm-tools-stream-d.0.json", "", ["llm_version"], ""),
        ("chat-mistral-tool-choice.0.json", "", ["get_weather"], ""),
        ("chat-tool-calls-without-id.0.json", "", ["get_current_time"], ""),
        ("response_only/mistral-mistral-reasoning.stream.json", "2 + 2 = 4", [], "The user is asking for 2+2."),
        ("response_only/mistral-mistral-incremental-tool-call.stream.json", "", ["webSearchTool"], ""),
        ("response_only/deepseek-deepseek-tool-call.stream.json", "", ["weather"], "The user is asking"),
        ("response_only/openai-compatible-anthropic-fallback-tool-call-sse.json", "Reading it.", ["read_file"], ""),
        ("response_only/xai-xai-tool-call.json", "", ["weather"], "First, the user"),
    ],
)
def test_what_some_of_them_say(name: str, text: str, calls: list[str], thinking: str) -> None:
    reply = read(REPLIES[name])
    thoughts = "".join(part.text for part in reply.message.parts if part.kind == "thinking")
    assert (reply.text, [call.name for call in reply.tool_calls]) == (text, calls)
    assert thoughts.startswith(thinking) if thinking else not thoughts


@pytest.mark.parametrize("name", STREAMS)
def test_a_recorded_stream_cut_at_any_byte_gives_the_same_reply(name: str) -> None:
    one = STREAMS[name]
    data = stream_of(one)
    expected = assembled(one, data)
    disturbed = data.replace(b"\n", b"\r\n"), data.replace(b"\n\n", b"\n\n: OPENROUTER PROCESSING\n\n")
    for variant in (data, *disturbed):
        check_every_split(variant, partial(assembled, one), expected)


@pytest.mark.parametrize("name", STREAMS)
def test_a_line_separator_within_a_text_ends_no_line(name: str) -> None:
    one = STREAMS[name]
    data = stream_of(one)
    starts = b'"content":"', b'"content": "'
    raw, escaped = (re.sub(b"(" + b"|".join(starts) + rb")(?=[^\"])", rb"\1" + mark, data) for mark in MARKS)
    assert assembled(one, raw) == assembled(one, escaped)
    assert (raw != data) == ("\u2028" in assembled(one, raw).text)


@pytest.mark.parametrize("name", STREAMS)
def test_a_recorded_stream_that_stops_early_is_no_reply(name: str) -> None:
    one = STREAMS[name]
    data = stream_of(one)
    events = [match.end() for match in re.finditer(b"\n\n", data)]
    finish = re.search(rb'"finish_reason": ?"', data)
    assert finish
    within = range(0, finish.start(), 1 + finish.start() // 40)
    for place in (*within, *(end for end in events if end < finish.start())):
        with pytest.raises(InvalidReply) as raised:
            assembled(one, data[:place])
        assert raised.value.retry


@pytest.mark.parametrize("name", CHAINS)
def test_what_was_read_goes_back_as_it_was_recorded(name: str) -> None:
    """The transcript of the recorded request, read into records and written again, says the same."""
    one = WHOLE[name]
    recorded_messages = one["request"]["body"]["messages"]
    provider = asked(one).model.provider
    transcript = [records_of(message) for message in recorded_messages]
    _, body = encode(Request(model=Model(f"{provider}:m"), messages=transcript))
    assert [plain(message) for message in body["messages"]] == [plain(message) for message in merged(recorded_messages)]


def records_of(message: dict[str, Any]) -> Message:
    if message["role"] == "tool":
        content = (Text(text=message["content"]),)
        return Message(role="tool", parts=(ToolResult(call_id=message["tool_call_id"], content=content),))
    if message["role"] == "assistant":
        return decode({"choices": [{"message": message}]}, Request(model=Model("openai-chat:m"), messages=())).message
    content = message["content"]
    if isinstance(content, str):
        return Message(role=message["role"], parts=(Text(text=content),))
    parts = [
        Text(text=part["text"]) if part["type"] == "text" else Image(url=part["image_url"]["url"]) for part in content
    ]
    return Message(role=message["role"], parts=tuple(parts))


def merged(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """With all leading system messages in one, as we send them."""
    count = next(index for index, message in enumerate(messages) if message["role"] != "system")
    system = "\n\n".join(message["content"] for message in messages[:count])
    return ([{"role": "system", "content": system}] if system else []) + messages[count:]


def plain(message: dict[str, Any]) -> dict[str, Any]:
    """What counts of a message: its words, and its calls with parsed arguments."""
    content = message.get("content") or ""
    if isinstance(content, list):
        words = [part.get("text") or part["image_url"]["url"] for part in content]
        content = words[0] if len(words) == 1 else words
    calls = [
        (entry["id"], entry["function"]["name"], json.loads(entry["function"]["arguments"]))
        for entry in message.get("tool_calls") or []
    ]
    return {"role": message["role"], "content": content or "", "id": message.get("tool_call_id"), "calls": calls}


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("chat-groq-tool-use-failed-400.0.json", InvalidReply, "did not match schema"),
        *((f"chat-openrouter-429.{turn}.json", RateLimited, "temporarily rate-limited upstream") for turn in range(3)),
    ],
)
def test_a_recorded_error_is_a_typed_one(name: str, error: type[ProviderError], words: str) -> None:
    one = ALL[name]
    endpoint = resolve_endpoint(Model(f"{one['provider']}:m"), environ={"GROQ_API_KEY": "k", "OPENROUTER_API_KEY": "k"})
    response = one["response"]
    body = json.dumps(response["body"]).encode()
    found = failures.of_response(endpoint, status=response["status"], headers=response["headers"], body=body)
    assert type(found) is error
    assert found.retry
    assert words in found.message


def test_calls_without_ids_get_some() -> None:
    reply = read(ALL["chat-tool-calls-without-id.0.json"])
    (call,) = reply.tool_calls
    assert (unmarked(call.call_id), call.name) == ("call_0_0", "get_current_time")


def test_reasoning_that_a_total_only_counts_is_counted() -> None:
    assert read(ALL["response_only/xai-xai-tool-call.json"]).usage.output_tokens == 215
