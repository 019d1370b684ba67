"""Recorded traffic of real providers. The recordings live beside the repository, and are skipped without it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from everturn.errors import InvalidReply, ProviderError, RateLimited
from everturn.models import Model
from everturn.providers import failures
from everturn.providers.base import Request
from everturn.providers.catalog import PROVIDERS, resolve
from everturn.providers.openai_chat import Assembler, decode, encode
from everturn.providers.sse import Decoder
from everturn.records import Image, Message, Reply, Text, ToolCall, ToolResult

HERE = Path(__file__).parents[3] / "shared" / "recordings"

pytestmark = pytest.mark.skipif(not HERE.exists(), reason="no recordings here")


def recorded() -> dict[str, dict[str, Any]]:
    found = {str(path.relative_to(HERE)): json.loads(path.read_text()) for path in sorted(HERE.rglob("*.json"))}
    return {name: one for name, one in found.items() if one.get("protocol") == "openai_chat"}


ALL = recorded() if HERE.exists() else {}
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
    decoder, assembler = Decoder(), Assembler(asked(one))
    for piece in pieces:
        for event in decoder.feed(piece):
            assembler.feed(event)
    for event in decoder.end():
        assembler.feed(event)
    return assembler.finish()


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
    # Every byte of what is short; of what is long, a step that meets every place within an event.
    for place in range(0, len(data), 1 + len(data) // 1500):
        assert assembled(one, data[:place], data[place:]) == expected
    assert assembled(one, *(data[place : place + 1] for place in range(len(data)))) == expected


@pytest.mark.parametrize("name", STREAMS)
def test_a_recorded_stream_that_stops_early_is_no_reply(name: str) -> None:
    one = STREAMS[name]
    data = stream_of(one)
    finish = next(
        index
        for index in range(len(data))
        if data[index:].startswith(b'"finish_reason"') and data[index + 16 :].lstrip()[:1] == b'"'
    )
    for place in range(0, finish, 1 + finish // 40):
        with pytest.raises(InvalidReply):
            assembled(one, data[:place])


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
        ("chat-openrouter-429.0.json", RateLimited, "temporarily rate-limited upstream"),
    ],
)
def test_a_recorded_error_is_a_typed_one(name: str, error: type[ProviderError], words: str) -> None:
    one = ALL[name]
    endpoint = resolve(Model(f"{one['provider']}:m"), environ={"GROQ_API_KEY": "k", "OPENROUTER_API_KEY": "k"})
    response = one["response"]
    body = json.dumps(response["body"]).encode()
    found = failures.of_response(endpoint, status=response["status"], headers=response["headers"], body=body)
    assert type(found) is error
    assert found.retry
    assert words in found.message


def test_calls_without_ids_get_some() -> None:
    reply = read(ALL["chat-tool-calls-without-id.0.json"])
    assert reply.tool_calls == (ToolCall(call_id="call_0_0", name="get_current_time"),)


def test_reasoning_that_a_total_only_counts_is_counted() -> None:
    assert read(ALL["response_only/xai-xai-tool-call.json"]).usage.output_tokens == 215
