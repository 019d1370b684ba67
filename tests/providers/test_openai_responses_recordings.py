"""Recorded traffic of OpenAI, xAI and LM Studio. The recordings live beside the repository; skipped without them.

What may differ between what we send and what was recorded, and why that changes nothing:
- A message of the user's or the system's may say its `type` or not.
- A call has no `id` and no `status` from us: it is paired by its call_id.
- A call's arguments are the text that the model wrote; a recording's client wrote them anew, spaced in its own way.
- `status: null`, empty `logprobs` and empty `annotations` say nothing.
- A document in a result goes by the name that its recorder gave it.
- What a recording's author put in by hand in an assistant's place (a <think> text, an altered answer) is his.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from everturn.errors import InvalidReply, ProviderError, QuotaExhausted, RequestRefused
from everturn.models import Model, ModelSettings
from everturn.providers import failures
from everturn.providers.base import Request
from everturn.providers.catalog import resolve_endpoint
from everturn.providers.failures import ErrorInReply
from everturn.providers.openai_responses import Assembler, decode, encode
from everturn.records import Document, Message, Reply, Text, ToolResult
from tests.providers.recorded import assembled as assembled_by
from tests.providers.recorded import check_every_split, needs_recordings, recorded

pytestmark = needs_recordings

# Its first and last events are cut off in the recording itself.
BROKEN = "response_only/openai-parallel-tool-call-wrapper.1.stream.json"
FAILED = "response_only/openai-openai-error.1.stream.json"


ALL = recorded("openai_responses")
REPLIES = {name: one for name, one in ALL.items() if one["response"]["status"] == 200 and name not in {BROKEN, FAILED}}
STREAMS = {name: one for name, one in REPLIES.items() if "body" not in one["response"]}
# The one request that was refused is refused for what its author had altered in it.
CHAINS = [name for name, one in ALL.items() if one.get("turn") and one["response"]["status"] == 200]
CHAINS = [name for name in CHAINS if not name.startswith("resp-reasoning-missing-item")]


def model_of(one: dict[str, Any]) -> Model:
    provider = one["provider"] if one["provider"] in {"openai", "xai"} else "openresponses"
    return Model(f"{provider}:gpt-5.5")


def asked(one: dict[str, Any]) -> Request:
    return Request(model=model_of(one), messages=[Message.user("?")])


def stream_of(one: dict[str, Any]) -> bytes:
    response = one["response"]
    if "sse" in response:
        return response["sse"].encode()  # type: ignore[no-any-return]
    events = [(event.get("type", ""), event.get("_raw") or json.dumps(event)) for event in response["events"]]
    return "".join(f"event: {name}\ndata: {data}\n\n" for name, data in events).encode()


def assembled(one: dict[str, Any], *pieces: bytes) -> Reply:
    return assembled_by(Assembler, asked(one), *pieces)


def read(one: dict[str, Any]) -> Reply:
    if "body" in one["response"]:
        return decode(one["response"]["body"], asked(one))
    return assembled(one, stream_of(one))


def response_of(one: dict[str, Any]) -> dict[str, Any]:
    """The response, by a plain reading."""
    if "body" in one["response"]:
        return one["response"]["body"]  # type: ignore[no-any-return]
    lines = stream_of(one).decode().split("\n")
    return [json.loads(line[6:]) for line in lines if line.startswith("data: ")][-1]["response"]  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", REPLIES)
def test_a_recorded_reply_is_read_in_full(name: str) -> None:
    reply, response = read(REPLIES[name]), response_of(REPLIES[name])
    blocks = [block for item in response["output"] if item["type"] == "message" for block in item["content"]]
    calls = [item for item in response["output"] if item["type"] == "function_call"]
    assert reply.text == "".join(block["text"] for block in blocks)
    assert [(call.call_id, call.name, call.arguments) for call in reply.tool_calls] == [
        (item["call_id"], item["name"], json.loads(item["arguments"])) for item in calls
    ]
    assert reply.stop == ("tool_calls" if calls else "end")
    usage = response["usage"]
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (usage["input_tokens"], usage["output_tokens"])
    assert reply.usage.cached_tokens == usage["input_tokens_details"]["cached_tokens"]
    assert reply.usage.reasoning_tokens == usage["output_tokens_details"]["reasoning_tokens"]
    assert reply.response_id == response["id"]


@pytest.mark.parametrize("name", REPLIES)
def test_a_recorded_reply_goes_back_item_by_item_with_every_opaque_string(name: str) -> None:
    one = REPLIES[name]
    message = read(one).message
    # With `store` on, for the recordings have reasoning that the server kept.
    request = Request(model=model_of(one), messages=[message], settings=ModelSettings(extra={"store": True}))
    sent = [item for item in encode(request)[1]["input"] if item.get("type") != "function_call_output"]
    output = response_of(one)["output"]
    assert [benign(item) for item in sent] == [benign(item) for item in output]
    written = json.dumps(sent)
    assert all(json.dumps(text)[1:-1] in written for text in opaque(output))


@pytest.mark.parametrize("name", CHAINS)
def test_the_history_that_a_reply_leads_to_is_the_next_request_that_was_recorded(name: str) -> None:
    one = ALL[name]
    recorded_body = one["request"]["body"]
    messages: list[Message] = []
    for turn in range(one["turn"]):
        before = ALL[name.replace(f".{one['turn']}.json", f".{turn}.json")]
        messages += said_since(before["request"]["body"]["input"], messages)
        messages.append(read_with(before, messages))
    messages += said_since(recorded_body["input"], messages)
    request = Request(model=model_of(one), messages=messages, instructions=recorded_body.get("instructions") or "")
    _, body = encode(request)
    assert [benign(item) for item in body["input"]] == [benign(item) for item in recorded_body["input"]]
    assert body.get("instructions", "") == (recorded_body.get("instructions") or "")
    written = json.dumps(body)
    assert all(json.dumps(text)[1:-1] in written for text in opaque(recorded_body["input"]))


def read_with(one: dict[str, Any], messages: list[Message]) -> Message:
    request = Request(model=model_of(one), messages=messages)
    if "body" in one["response"]:
        return decode(one["response"]["body"], request).message
    return assembled(one, stream_of(one)).message


def said_since(items: list[dict[str, Any]], messages: list[Message]) -> Iterator[Message]:
    """What a recorded input holds that no model said, and that is not in the transcript yet."""
    users = sum(message.role == "user" for message in messages)
    answered = {result.call_id for message in messages for result in message.tool_results}
    for item in items:
        if item.get("role") == "user":
            users -= 1
            if users < 0:
                yield Message.user(item["content"])
        elif item.get("type") == "function_call_output" and item["call_id"] not in answered:
            content = tuple(content_of(item["output"]))
            yield Message(role="tool", parts=(ToolResult(call_id=item["call_id"], content=content),))


def content_of(output: Any) -> Iterator[Text | Document]:
    if isinstance(output, str):
        yield Text(text=output)
        return
    for part in output:
        head, data = part["file_data"].split(";base64,")
        yield Document(data=data, media_type=head.removeprefix("data:"), name=part["filename"])


def benign(item: dict[str, Any]) -> dict[str, Any]:
    item = {name: value for name, value in item.items() if value is not None}
    if item.get("type") == "function_call":
        item = {name: value for name, value in item.items() if name not in {"id", "status"}}
        item["arguments"] = json.loads(item["arguments"])
    if isinstance(item.get("content"), list):
        item["content"] = [
            {name: value for name, value in block.items() if name != "logprobs" and value != []}
            for block in item["content"]
        ]
    return item


def opaque(value: Any) -> Iterator[str]:
    """The strings that only their maker can read."""
    if isinstance(value, dict):
        for name, inner in value.items():
            kept = name in {"encrypted_content", "fingerprint", "call_id"} or name == "id"
            if kept and isinstance(inner, str) and not inner.startswith("fc_"):
                yield inner
            yield from opaque(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from opaque(inner)


def variants(data: bytes) -> Iterator[bytes]:
    yield data
    yield data.replace(b"\n", b"\r\n")
    yield data.replace(b"\n\n", b"\n\n: keepalive\n\n")
    yield re.sub(rb"(?m)^event: .*\n", b"", data)


@pytest.mark.parametrize("name", STREAMS)
def test_a_recorded_stream_cut_at_any_byte_gives_the_same_reply(name: str) -> None:
    one = STREAMS[name]
    expected = assembled(one, stream_of(one))
    for data in variants(stream_of(one)):
        check_every_split(data, partial(assembled, one), expected)


@pytest.mark.parametrize("name", STREAMS)
def test_a_line_separator_within_a_text_is_a_character_like_any_other(name: str) -> None:
    one = STREAMS[name]
    data = stream_of(one).decode()
    expected = assembled(one, data.encode())
    text = expected.text or json.dumps(expected.tool_calls[0].arguments if expected.tool_calls else {})
    word = max(re.findall(r"[A-Za-z]{3,}", text), key=len, default="")
    changed = assembled(one, data.replace(word, f"{word[:2]}\u2028{word[2:]}").encode()) if word else expected
    assert changed.text == (expected.text.replace(word, f"{word[:2]}\u2028{word[2:]}") if word else expected.text)


@pytest.mark.parametrize("name", STREAMS)
def test_a_recorded_stream_that_stops_early_is_no_reply_and_no_call(name: str) -> None:
    one = STREAMS[name]
    events = stream_of(one).split(b"\n\n")
    last = next(index for index, event in enumerate(events) if b"response.completed" in event)
    for count in range(last + 1):
        with pytest.raises(InvalidReply) as raised:
            assembled(one, b"\n\n".join(events[:count]) + b"\n\n")
        assert raised.value.retry


def test_a_stream_that_fails_is_a_typed_error() -> None:
    with pytest.raises(ErrorInReply) as raised:
        read(ALL[FAILED])
    endpoint = resolve_endpoint(Model("openai:m"), environ={"OPENAI_API_KEY": "k"})
    found = failures.of_response(endpoint, status=200, headers={}, body=raised.value.body)
    assert (type(found), found.retry) == (QuotaExhausted, False)


def test_a_stream_with_broken_events_is_no_reply() -> None:
    with pytest.raises(InvalidReply):
        read(ALL[BROKEN])


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("resp-http-error-400.0.json", RequestRefused, "decimal below minimum value"),
        ("resp-reasoning-missing-item-400.1.json", RequestRefused, "without its required following item"),
        ("response_only/openai-reasoning-model-temperature-error.json", RequestRefused, "'temperature'"),
    ],
)
def test_a_recorded_error_is_a_typed_one(name: str, error: type[ProviderError], words: str) -> None:
    response = ALL[name]["response"]
    endpoint = resolve_endpoint(Model("openai:m"), environ={"OPENAI_API_KEY": "k"})
    body = json.dumps(response["body"]).encode()
    found = failures.of_response(endpoint, status=response["status"], headers=response.get("headers", {}), body=body)
    assert (type(found), found.retry) == (error, False)
    assert words in found.message


def test_what_xai_searched_for_itself_is_shown_and_never_run() -> None:
    reply = read(ALL["response_only/xai-xai-x-search-tool.1.json"])
    assert [part.kind for part in reply.message.parts] == ["server_tool_use", "text"]
    assert len(reply.message.parts[1].extra["annotations"]) == 20
