"""Recorded traffic of Gemini. The recordings live beside the repository, and are skipped without it."""

from __future__ import annotations

import base64
import json
import re
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from everturn.errors import InvalidReply, ModelNotFound
from everturn.models import Model, ModelSettings
from everturn.providers import failures
from everturn.providers.base import Request
from everturn.providers.catalog import resolve_endpoint
from everturn.providers.gemini import Assembler, decode, encode
from everturn.records import Document, Message, Reply, Text, ToolResult
from tests.providers.recorded import assembled as assembled_by
from tests.providers.recorded import check_every_split, needs_recordings, recorded

pytestmark = needs_recordings


ALL = recorded("gemini_generate_content")
REPLIES = {name: one for name, one in ALL.items() if one["response"]["status"] == 200}


def chains() -> dict[str, list[dict[str, Any]]]:
    """The turns of each recorded conversation, as far as one follows the other."""
    cases: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for one in REPLIES.values():
        if one.get("request") and one["turn"] == len(cases[one["case"]]):
            cases[one["case"]].append(one)
    return {case: turns for case, turns in cases.items() if len(turns) > 1}


CHAINS = chains()


def model_of(one: dict[str, Any]) -> Model:
    url = (one.get("request") or {}).get("url", "")
    match = re.search(r"/models/([^:]+):", url)
    return Model(f"google:{match[1] if match else 'gemini-3-pro-preview'}")


def asked(one: dict[str, Any], *messages: Message) -> Request:
    return Request(model=model_of(one), messages=messages or [Message.user("?")], settings=ModelSettings(stream=False))


def chunks_of(one: dict[str, Any]) -> list[dict[str, Any]]:
    """What came, by a plain reading: the whole body, or each event's JSON."""
    response = one["response"]
    if "body" in response:
        return response["body"] if isinstance(response["body"], list) else [response["body"]]
    if "events" in response:
        return response["events"]  # type: ignore[no-any-return]
    return [json.loads(line[6:]) for line in response["sse"].split("\r\n") if line.startswith("data: ")]


def parts_of(one: dict[str, Any]) -> list[dict[str, Any]]:
    contents = [candidate["content"] for chunk in chunks_of(one) for candidate in chunk.get("candidates", [])]
    return [part for content in contents for part in content.get("parts", [])]


def stream_of(one: dict[str, Any]) -> bytes:
    """The stream as recorded, or as Google would have streamed what was recorded in another form."""
    if "sse" in one["response"]:
        return one["response"]["sse"].encode()  # type: ignore[no-any-return]
    return "".join(f"data: {json.dumps(chunk, ensure_ascii=False)}\r\n\r\n" for chunk in chunks_of(one)).encode()


def assembled(one: dict[str, Any], *pieces: bytes, messages: Sequence[Message] = ()) -> Reply:
    return assembled_by(Assembler, asked(one, *messages), *pieces)


def read(one: dict[str, Any], *messages: Message) -> Reply:
    if "body" in one["response"]:
        return decode(one["response"]["body"], asked(one, *messages))
    return assembled(one, stream_of(one), messages=messages)


@pytest.mark.parametrize("name", REPLIES)
def test_a_recorded_reply_is_read_in_full(name: str) -> None:
    one = REPLIES[name]
    reply, chunks, parts = read(one), chunks_of(one), parts_of(one)
    calls = [part["functionCall"] for part in parts if part.get("functionCall", {}).get("name")]
    usage = chunks[-1]["usageMetadata"]
    finish = [candidate.get("finishReason") for chunk in chunks for candidate in chunk["candidates"]][-1]
    assert reply.text == "".join(part.get("text", "") for part in parts if not part.get("thought"))
    assert [call.name for call in reply.tool_calls] == [call["name"] for call in calls]
    assert all(call.unparsed is None and call.call_id for call in reply.tool_calls)
    for call, given in zip(reply.tool_calls, calls, strict=True):
        assert call.arguments == given.get("args", call.arguments)
        assert call.call_id == given.get("id", call.call_id)
    assert reply.usage.total_tokens == usage["totalTokenCount"]
    assert reply.usage.output_tokens == usage.get("candidatesTokenCount", 0) + usage.get("thoughtsTokenCount", 0)
    assert reply.usage.reasoning_tokens == usage.get("thoughtsTokenCount", 0)
    assert reply.stop == ("tool_calls" if calls else {"STOP": "end", "MAX_TOKENS": "length"}[finish])
    assert reply.response_id == chunks[0].get("responseId")
    assert assembled(one, stream_of(one)) == reply


def test_streamed_arguments_are_put_together() -> None:
    reply = read(ALL["response_only/gemini-google-stream-tool-call-arguments.stream.json"])
    assert [(call.name, call.arguments) for call in reply.tool_calls] == [
        ("getWeather", {"location": "Boston"}),
        ("getWeather", {"location": "San Francisco"}),
    ]
    assert [bool(call.extra) for call in reply.tool_calls] == [True, False]


@pytest.mark.parametrize("name", REPLIES)
def test_every_opaque_string_goes_back_on_its_exact_part(name: str) -> None:
    one = REPLIES[name]
    reply = read(one)
    _, body = encode(asked(one, Message.user("?"), reply.message))
    sent = [part for content in body["contents"] if content["role"] == "model" for part in content["parts"]]
    # Which kind of part each is on, and how many parts with something in them came before.
    assert signatures(sent) == signatures(parts_of(one))
    for part in parts_of(one):
        if part.keys() & {"toolCall", "toolResponse", "executableCode", "codeExecutionResult"}:
            assert part in sent


def signatures(parts: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [
        (next(key for key in part if key not in {"thoughtSignature", "thought"}), part["thoughtSignature"])
        for part in parts
        if "thoughtSignature" in part
    ]


@pytest.mark.parametrize("case", CHAINS)
def test_the_next_request_is_the_recorded_one_up_to_benign_differences(case: str) -> None:
    turns = CHAINS[case]
    transcript = [Message.user(turns[0]["request"]["body"]["contents"][0]["parts"][0]["text"])]
    for turn, following in pairwise(turns):
        message = read(turn, *transcript).message
        recorded = following["request"]["body"]["contents"]
        transcript += [message, answer(message, recorded)]
        _, body = encode(asked(following, *transcript))
        assert [alike(content) for content in body["contents"]] == [alike(content) for content in recorded]
        calls, results = (ids(body["contents"], kind) for kind in ("functionCall", "functionResponse"))
        assert calls == results
        assert {*ids([{"parts": parts_of(turn)}], "functionCall")} - {None} <= {*calls}


def ids(contents: list[dict[str, Any]], kind: str) -> list[str | None]:
    return [part[kind].get("id") for content in contents for part in content["parts"] if kind in part]


def answer(message: Message, recorded: list[dict[str, Any]]) -> Message:
    """What the recorded client sent after the last thing that the model said: results, or a user's message."""
    last = max(place for place, content in enumerate(recorded) if content["role"] == "model")
    parts = [plain(part) for content in recorded[last + 1 :] for part in content["parts"]]
    responses = [part["functionResponse"]["response"] for part in parts if "functionResponse" in part]
    files = [
        Document(data=standard(part["inlineData"]["data"]), media_type=part["inlineData"]["mimeType"])
        for part in parts
        if "inlineData" in part
    ]
    if not responses:
        return Message.user("".join(part["text"] for part in parts))
    texts = [[Text(text=value) for value in response.values() if isinstance(value, str)] for response in responses]
    results = [
        ToolResult(call_id=call.call_id, content=(*text, *files))
        for call, text in zip(message.tool_calls, texts, strict=True)
    ]
    return Message(role="tool", parts=tuple(results))


def alike(content: dict[str, Any]) -> Any:
    """A content without what may differ:

    - other clients spell some names in snake_case, and Google's SDK writes base64 in its URL alphabet;
    - ids, where the provider gave none: clients make up their own, or leave them out;
    - the key under which a result stands ("return_value", "output"), and in what words a file is announced;
    - an empty text without a signature, which one client puts before its calls.
    """
    parts = [plain(part) for part in content["parts"]]
    announced = any("inlineData" in part for part in parts)
    return content["role"], [part for part in map(comparable, parts) if part and not (announced and "text" in part)]


def comparable(part: dict[str, Any]) -> dict[str, Any]:
    found = dict(part)
    if part.get("text") == "" and len(part) == 1:
        return {}
    if "thoughtSignature" in part:
        found["thoughtSignature"] = standard(part["thoughtSignature"])
    if "inlineData" in part:
        found["inlineData"] = part["inlineData"] | {"data": standard(part["inlineData"]["data"])}
    if "functionCall" in part:
        found["functionCall"] = {name: part["functionCall"][name] for name in ("name", "args")}
    if "functionResponse" in part:
        (value,) = part["functionResponse"]["response"].values()
        file = not isinstance(value, str) or value.startswith("[document")
        found["functionResponse"] = (part["functionResponse"]["name"], "a file" if file else value)
    return found


def plain(part: dict[str, Any]) -> dict[str, Any]:
    names = {"function_call": "functionCall", "function_response": "functionResponse"}
    return {names.get(name, name): value for name, value in part.items()}


def standard(data: str) -> str:
    return base64.b64encode(base64.urlsafe_b64decode(data.replace("+", "-").replace("/", "_"))).decode()


@pytest.mark.parametrize("name", REPLIES)
def test_a_stream_cut_at_any_byte_gives_the_same_reply(name: str) -> None:
    one = REPLIES[name]
    crlf = stream_of(one)
    assert b"\r\n\r\n" in crlf
    expected = assembled(one, crlf)
    comments = b": ping\n\n" + crlf.replace(b"\r\n\r\n", b"\r\n\r\n: ping\r\n\r\n")
    for data in (crlf, crlf.replace(b"\r\n", b"\n"), crlf.replace(b"\r\n", b"\r"), comments):
        check_every_split(data, partial(assembled, one), expected)


@pytest.mark.parametrize("name", REPLIES)
def test_a_line_separator_within_a_text_ends_no_line(name: str) -> None:
    one = REPLIES[name]
    data = stream_of(one)
    raw, escaped = (data.replace(b'"text": "', b'"text": "' + mark) for mark in ("\u2028".encode(), b"\\u2028"))
    assert assembled(one, raw) == assembled(one, escaped)
    assert (b'"text": "' in data) == ("\u2028" in assembled(one, raw).text)


@pytest.mark.parametrize("name", REPLIES)
def test_a_stream_that_stops_early_is_no_reply(name: str) -> None:
    one = REPLIES[name]
    data = stream_of(one)
    ends = [match.end() for match in re.finditer(b"\r\n\r\n", data)]
    within = range(0, ends[-1] - len(b"}\r\n\r\n"), 1 + len(data) // 300)
    for place in (*ends[:-1], *within):
        with pytest.raises(InvalidReply) as raised:
            assembled(one, data[:place])
        assert raised.value.retry


def test_a_recorded_error_is_a_typed_one() -> None:
    response = ALL["gem-404-model.0.json"]["response"]
    endpoint = resolve_endpoint(Model("google:gemini-3.6-flahs"), environ={"GEMINI_API_KEY": "k"})
    body = json.dumps(response["body"]).encode()
    found = failures.of_response(endpoint, status=response["status"], headers=response["headers"], body=body)
    assert type(found) is ModelNotFound
    assert "models/gemini-3.6-flahs is not found" in found.message
