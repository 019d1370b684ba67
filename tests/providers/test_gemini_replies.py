"""Gemini: what its answers are read as, whole and streamed."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everturn.errors import InvalidReply
from everturn.http.sse import Event
from everturn.models import Model
from everturn.providers.base import Delta, Request, ToolSpec
from everturn.providers.failures import ErrorInReply
from everturn.providers.gemini import Assembler, decode, encode
from everturn.records import Image, Message, Opaque, Reply, ServerToolUse, Text, Thinking, ToolCall, Usage
from tests.providers.drawn import unmarked

ASKED = Request(model=Model("google:gemini-3-flash"), messages=(Message.user("?"),))
SIGNED = {"thoughtSignature": "A+/="}


def chunk(*parts: Any, finish: str | None = None, **more: Any) -> dict[str, Any]:
    candidate = {"content": {"role": "model", "parts": [*parts]}, "index": 0}
    return {"candidates": [candidate | ({"finishReason": finish} if finish else {})], "responseId": "r1", **more}


def whole(*parts: Any, finish: str | None = "STOP", asked: Request = ASKED, **more: Any) -> Reply:
    return decode(chunk(*parts, finish=finish, **more), asked)


def streamed(*chunks: dict[str, Any]) -> Reply:
    assembler = Assembler(ASKED)
    for one in chunks:
        assembler.feed(Event(json.dumps(one)))
    return assembler.finish()


def call(name: str = "weather", args: Any = None, **more: Any) -> dict[str, Any]:
    return {"functionCall": {"name": name, "args": {} if args is None else args}, **more}


def partial(*values: dict[str, Any], more: bool = True, **fields: Any) -> dict[str, Any]:
    going_on = {"willContinue": True} if more else {}
    return {"functionCall": {**fields, **({"partialArgs": [*values]} if values else {}), **going_on}}


def test_a_reply_is_its_text_and_where_it_came_from() -> None:
    message = Message(role="assistant", parts=(Text(text="Hello."),))
    assert whole({"text": "Hello."}) == Reply(message=message, model="google:gemini-3-flash", response_id="r1")


@pytest.mark.parametrize(
    ("parts", "read"),
    [
        ([{"text": "a"}, {"text": "b"}], [Text(text="ab")]),
        ([{"text": "a"}, {"text": ""}, None, 7, {}], [Text(text="a")]),
        ([{"text": "t", "thought": True}, {"text": "a"}], [Thinking(text="t"), Text(text="a")]),
        ([{"text": "a", "thought": False}], [Text(text="a")]),
        (
            [{"text": "a"}, {"text": "b", **SIGNED}, {"text": "c"}],
            [Text(text="a"), Text(text="b", extra=SIGNED), Text(text="c")],
        ),
        ([{"text": "a"}, {"text": "", **SIGNED}], [Text(text="a"), Text(text="", extra=SIGNED)]),
        (
            [{"text": "t", "thought": True, **SIGNED}, {"text": "u", "thought": True}, {"text": "a"}],
            [Thinking(text="t", extra=SIGNED), Thinking(text="u"), Text(text="a")],
        ),
        (
            [{"executableCode": {"code": "1"}, **SIGNED}, {"codeExecutionResult": {"output": "1"}}],
            [
                ServerToolUse(name="code_execution", data={"executableCode": {"code": "1"}, **SIGNED}),
                ServerToolUse(name="code_execution", data={"codeExecutionResult": {"output": "1"}}),
            ],
        ),
        (
            [{"toolCall": {"toolType": "GOOGLE_SEARCH_WEB"}, **SIGNED}],
            [ServerToolUse(name="google_search_web", data={"toolCall": {"toolType": "GOOGLE_SEARCH_WEB"}, **SIGNED})],
        ),
        (
            [{"inlineData": {"mimeType": "image/png", "data": "AA"}, **SIGNED}],
            [Image(data="AA", media_type="image/png", extra=SIGNED)],
        ),
        (
            [{"inlineData": {"mimeType": "image/png", "data": "AA"}, "thought": True}],  # a draft: not to be shown
            [Opaque(data={"inlineData": {"mimeType": "image/png", "data": "AA"}, "thought": True})],
        ),
        (
            [{"inlineData": {"mimeType": "audio/wav", "data": "AA"}}],
            [Opaque(data={"inlineData": {"mimeType": "audio/wav", "data": "AA"}})],
        ),
        ([{"brandNew": {"x": 1}, **SIGNED}], [Opaque(data={"brandNew": {"x": 1}, **SIGNED})]),
        ([SIGNED, {"text": "a"}], [Opaque(data=SIGNED), Text(text="a")]),
    ],
)
def test_parts_are_kept_as_they_came(parts: list[Any], read: list[Any]) -> None:
    assert whole(*parts).message.parts == tuple(read)
    assert streamed(*map(chunk, parts), chunk(finish="STOP")).message == whole(*parts).message
    assert whole(*parts).message.provider == ("" if all(type(p) is Text and not p.extra for p in read) else "google")


def test_calls_one_per_event_stay_in_one_message_with_the_signature_on_the_first() -> None:
    found = streamed(chunk(call(args={"city": "Paris"}, **SIGNED)), chunk(call()), chunk({"text": ""}, finish="STOP"))
    assert found.stop == "tool_calls"
    assert [unmarked(call.call_id) for call in found.tool_calls] == ["call_0_0", "call_0_1"]
    ids = [call.call_id for call in found.tool_calls]
    assert found.message.parts == (
        ToolCall(call_id=ids[0], name="weather", arguments={"city": "Paris"}, extra=SIGNED),
        ToolCall(call_id=ids[1], name="weather"),
    )
    _, body = encode(Request(model=ASKED.model, messages=[*ASKED.messages, found.message]))
    first, second = body["contents"][1]["parts"]
    assert first["thoughtSignature"] == "A+/="
    assert "thoughtSignature" not in second


def test_ids_are_kept_where_they_are_new_in_the_conversation() -> None:
    before = Message(role="assistant", parts=(ToolCall(call_id="x", name="a"), ToolCall(call_id="call_1_0", name="b")))
    asked = Request(model=ASKED.model, messages=(Message.user("?"), before))
    parts = [{"functionCall": {"name": "n", "id": given}} for given in ("x", "y", "y", None)]
    found = whole(*parts, asked=asked).tool_calls
    ids = [(unmarked(one.call_id), one.provider_id) for one in found]
    assert ids == [("call_1_0", "x"), ("y", None), ("call_1_2", None), ("call_1_3", None)]


def test_names_come_back_as_the_tools_own() -> None:
    asked = Request(model=ASKED.model, messages=ASKED.messages, tools=[ToolSpec("a b/ü")])
    name = encode(asked)[1]["tools"][0]["functionDeclarations"][0]["name"]
    assert whole(call(name), asked=asked).tool_calls[0].name == "a b/ü"


@pytest.mark.parametrize(("args", "unparsed"), [("{", "{"), ([1], "[1]"), (7, "7")])
def test_arguments_that_are_no_object_are_kept_as_text(args: Any, unparsed: str) -> None:
    assert whole(call(args=args)).tool_calls[0].unparsed == unparsed


@pytest.mark.parametrize(
    ("pieces", "arguments"),
    [
        ([partial(more=False)], {}),
        ([partial({"jsonPath": "$.a", "stringValue": "x", "willContinue": True}), partial(more=False)], {"a": "x"}),
        (
            [
                partial({"jsonPath": "$.a", "stringValue": "x", "willContinue": True}),
                partial({"jsonPath": "$.a", "stringValue": "y"}, {"jsonPath": "$.b", "numberValue": 2}),
                partial({"jsonPath": "$.c", "boolValue": False}, {"jsonPath": "$.d", "nullValue": "NULL_VALUE"}),
                partial(more=False),
            ],
            {"a": "xy", "b": 2, "c": False, "d": None},
        ),
        (
            # The last piece of a list closes the call by itself (vercel/ai#14358).
            [
                partial({"jsonPath": "$.ops[0].id", "stringValue": "p"}),
                partial({"jsonPath": "$.ops[1]['a.b']", "stringValue": "q"}),
                partial({"jsonPath": '$.ops[1]["it\'s"][0]', "numberValue": 0.5}, more=False),
            ],
            {"ops": [{"id": "p"}, {"a.b": "q", "it's": [0.5]}]},
        ),
    ],
)
def test_arguments_in_pieces_are_put_together(pieces: list[dict[str, Any]], arguments: dict[str, Any]) -> None:
    start = partial(name="weather") | SIGNED
    found = streamed(chunk(start), *map(chunk, pieces), chunk(call("other"), finish="STOP")).tool_calls
    assert [one.arguments for one in found] == [arguments, {}]
    assert found[0].extra == SIGNED


@pytest.mark.parametrize(
    "value",
    [
        {"jsonPath": "a", "stringValue": "x"},
        {"jsonPath": "$..a", "stringValue": "x"},
        {"jsonPath": "$", "stringValue": "x"},
        {"jsonPath": "$[0]", "stringValue": "x"},
        {"jsonPath": "$.a[999999]", "stringValue": "x"},
        {"jsonPath": "$" + ".a" * 5000, "stringValue": "x"},
        {"jsonPath": "$.a", "structValue": {}},
        {"stringValue": "x"},
    ],
)
def test_pieces_that_can_not_be_put_together_are_no_reply(value: dict[str, Any]) -> None:
    with pytest.raises(InvalidReply, match="arguments"):
        streamed(chunk(partial(name="weather")), chunk(partial(value, more=False), finish="STOP"))


def test_an_unfinished_call_is_never_handed_on() -> None:
    start = chunk(partial({"jsonPath": "$.a", "stringValue": "x"}, name="weather"))
    with pytest.raises(InvalidReply, match="not complete"):
        streamed(start, chunk(finish="STOP"))
    cut = streamed(chunk({"text": "a"}), chunk(call()), start, chunk(finish="MAX_TOKENS"))
    assert (cut.stop, cut.text, len(cut.tool_calls)) == ("length", "a", 1)


@pytest.mark.parametrize(
    ("finish", "stop"),
    [
        ("STOP", "end"),
        ("max_tokens", "length"),  # as a gateway spells it
        ("MAX_TOKENS", "length"),
        ("CONTINUATION", "length"),
        *((reason, "filtered") for reason in ("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII")),
        *((reason, "filtered") for reason in ("LANGUAGE", "OTHER", "MODEL_ARMOR", "IMAGE_SAFETY")),
    ],
)
def test_why_it_stopped(finish: str, stop: str) -> None:
    assert whole({"text": "a"}, finish=finish).stop == stop
    assert whole(call(), finish=finish).stop == ("length" if stop == "length" else "tool_calls")


@pytest.mark.parametrize("content", [{}, {"content": {}}, {"content": {"role": "model"}}, {"content": {"parts": None}}])
def test_a_reply_that_ran_out_of_tokens_may_be_empty(content: dict[str, Any]) -> None:
    found = decode({"candidates": [{**content, "finishReason": "MAX_TOKENS"}]}, ASKED)
    assert (found.stop, found.message.parts) == ("length", ())


@pytest.mark.parametrize(
    "finish",
    [
        "MALFORMED_FUNCTION_CALL",
        "UNEXPECTED_TOOL_CALL",
        "MALFORMED_RESPONSE",
        "TOO_MANY_TOOL_CALLS",
        "MISSING_THOUGHT_SIGNATURE",
    ],
)
def test_a_model_that_went_wrong_is_asked_again(finish: str) -> None:
    with pytest.raises(InvalidReply, match=finish) as raised:
        whole({"text": "a"}, finish=finish)
    assert raised.value.retry


def test_a_signed_text_says_something_even_an_empty_one() -> None:
    thought = {"text": "hm", "thought": True}
    assert whole(thought).is_empty
    assert not whole(thought, {"text": "", **SIGNED}).is_empty


def test_a_blocked_prompt_is_a_filtered_reply() -> None:
    blocked = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 5}}
    for found in (decode(blocked, ASKED), streamed(blocked), streamed(chunk({"text": "a"}), blocked)):
        assert (found.stop, found.usage.input_tokens) == ("filtered", 5)


@pytest.mark.parametrize("body", [{}, [], None, 7, {"candidates": []}, {"promptFeedback": {}}])
def test_an_answer_without_a_candidate_is_no_reply(body: Any) -> None:
    with pytest.raises(InvalidReply, match="no candidate"):
        decode(body, ASKED)


def test_a_stream_or_array_without_its_finish_reason_broke_off() -> None:
    with pytest.raises(InvalidReply, match="ended in the middle"):
        streamed(chunk({"text": "a"}))
    with pytest.raises(InvalidReply, match="ended in the middle"):
        decode([chunk({"text": "a"})], ASKED)
    assert decode([chunk({"text": "a"}), chunk(finish="STOP")], ASKED).text == "a"


def test_only_the_first_candidate_is_read() -> None:
    other = {"index": 1, "content": {"parts": [{"text": "other"}]}, "finishReason": "STOP"}
    chunks = [chunk({"text": "a"}), {"candidates": [other]}, chunk({"text": "b"}, finish="STOP")]
    assert streamed(*chunks).text == "ab"


def test_usage_is_the_last_that_counts_something() -> None:
    last = {
        "promptTokenCount": 10,
        "cachedContentTokenCount": 4,
        "toolUsePromptTokenCount": 3,
        "candidatesTokenCount": 2,
        "thoughtsTokenCount": 5,
        "totalTokenCount": 20,
    }
    found = streamed(
        chunk({"text": "a"}, usageMetadata={"promptTokenCount": 99}),
        chunk(finish="STOP", usageMetadata=last),
        {"usageMetadata": {"trafficType": "ON_DEMAND"}},
    ).usage
    assert found == Usage(input_tokens=13, output_tokens=7, cached_tokens=4, reasoning_tokens=5)
    assert found.total_tokens == 20


def test_what_stands_beside_the_parts_is_kept_and_not_sent_back() -> None:
    chunks = [chunk({"text": "a"}), chunk(finish="STOP")]
    chunks[0]["candidates"][0]["groundingMetadata"] = {"webSearchQueries": ["q"]}
    chunks[1]["candidates"][0] |= {"groundingMetadata": {"groundingChunks": [1]}, "citationMetadata": {}}
    message = streamed(*chunks).message
    grounding = {"groundingMetadata": {"webSearchQueries": ["q"], "groundingChunks": [1]}}
    assert message.parts == (Text(text="a"), ServerToolUse(name="google_search", data=grounding))
    _, body = encode(Request(model=ASKED.model, messages=[*ASKED.messages, message]))
    assert body["contents"][1]["parts"] == [{"text": "a"}]


def test_deltas_are_given_on_as_they_come() -> None:
    assembler = Assembler(ASKED)
    parts = ({"text": "t", "thought": True}, {"text": "a"}, {"text": ""}, call())
    given_on = [assembler.feed(Event(json.dumps(chunk(part)))) for part in parts]
    assert given_on == [[Delta("thinking", "t")], [Delta("text", "a")], [], []]


def test_a_character_cut_in_two_is_joined() -> None:
    assembler = Assembler(ASKED)
    for half in (r"\ud83d", r"\ude0a"):
        assembler.feed(Event(json.dumps(chunk({"text": "HALF"}, finish="STOP")).replace("HALF", half)))
    assert assembler.finish().text == "😊"


@pytest.mark.parametrize("data", ["not json", "7", '"x"', "[1]"])
def test_an_event_that_is_no_chunk_is_refused(data: str) -> None:
    with pytest.raises(InvalidReply):
        Assembler(ASKED).feed(Event(data))


@pytest.mark.parametrize(
    "event", [Event('{"error": {"code": 503}}'), Event('[{"error": {"code": 503}}]'), Event('"x"', "error")]
)
def test_an_error_in_the_middle_of_a_stream_is_handed_on(event: Event) -> None:
    with pytest.raises(ErrorInReply):
        Assembler(ASKED).feed(event)


def test_a_gateways_last_word_ends_the_stream() -> None:
    assembler = Assembler(ASKED)
    assembler.feed(Event(json.dumps(chunk({"text": "a"}))))
    assembler.feed(Event("[DONE]"))
    assert assembler.done
    assert assembler.finish().text == "a"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
part_names = ["text", "thought", "functionCall", "thoughtSignature", "toolCall", "inlineData", "executableCode", "new"]
call_fields = st.dictionaries(st.sampled_from(["name", "id", "args", "partialArgs", "willContinue"]), json_values)
parts = st.dictionaries(st.sampled_from(part_names), json_values | call_fields, max_size=3) | json_values


@given(parts=st.lists(parts, max_size=6), finish=st.sampled_from(["STOP", "MAX_TOKENS", "SAFETY", None]))
def test_no_part_crashes_the_reader_and_what_is_read_can_be_sent_back(parts: list[Any], finish: str | None) -> None:
    with contextlib.suppress(InvalidReply):
        found = whole(*parts, finish=finish)
        assert Reply.model_validate_json(found.model_dump_json()) == found
        encode(Request(model=ASKED.model, messages=[*ASKED.messages, found.message]))


@given(
    body=st.dictionaries(st.sampled_from(["candidates", "usageMetadata", "promptFeedback", "responseId"]), json_values)
)
def test_no_json_crashes_the_reader(body: dict[str, Any]) -> None:
    with contextlib.suppress(InvalidReply, ErrorInReply):
        decode(body, ASKED)


@given(
    chunks=st.lists(
        st.fixed_dictionaries(
            {"text": st.text(max_size=9)}, optional={"thought": st.booleans(), "thoughtSignature": st.text()}
        )
        | st.builds(
            call, st.from_regex(r"[a-z]{1,8}", fullmatch=True), st.dictionaries(st.text(max_size=5), json_values)
        ),
        max_size=8,
    )
)
def test_any_reply_is_the_same_streamed_and_whole(chunks: list[dict[str, Any]]) -> None:
    last = {"text": "."}
    assert streamed(*map(chunk, chunks), chunk(last, finish="STOP")) == whole(*chunks, last)
