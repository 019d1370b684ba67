"""Anthropic Messages: what its answers are read as, whole and streamed."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everturn.errors import InvalidReply
from everturn.http.sse import Event, EventDecoder
from everturn.models import Model
from everturn.providers.anthropic_messages import Assembler, decode
from everturn.providers.base import Delta, Request
from everturn.providers.failures import ErrorInReply
from everturn.records import Message, Opaque, Part, Reply, ServerToolUse, Text, Thinking, ToolCall, Usage
from tests.providers.drawn import unmarked
from tests.providers.messages import assistant

MODEL = Model("anthropic:m")


def request(*messages: Message) -> Request:
    return Request(model=MODEL, messages=messages or (Message.user("?"),))


def reply(*blocks: dict[str, Any], stop: str | None = "end_turn", **more: Any) -> Reply:
    asked = more.pop("asked", request())
    body = {"id": "r1", "type": "message", "role": "assistant", "content": list(blocks), "stop_reason": stop, **more}
    return decode(body, asked)


START = {"type": "message_start", "message": {"id": "r1", "content": [], "usage": {"input_tokens": 5}}}
STOP = {"type": "message_stop"}


def block(start: dict[str, Any], *deltas: dict[str, Any], index: int = 0) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def ended(stop: str | None = "end_turn", usage: Any = None, **more: Any) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": stop, **more}, "usage": usage or {}}


def streamed(*events: dict[str, Any]) -> Reply:
    assembler = Assembler(request())
    for event in events:
        assembler.feed(Event(json.dumps(event), event["type"]))
    return assembler.finish()


def text(words: str = "a") -> dict[str, Any]:
    return {"type": "text", "text": words}


def use(name: str = "weather", given: Any = None, *, id: str = "t1", **more: Any) -> dict[str, Any]:  # noqa: A002
    return {"type": "tool_use", "id": id, "name": name, "input": {} if given is None else given, **more}


def test_a_reply_is_its_text_and_where_it_came_from() -> None:
    assert reply(text("Hello.")) == Reply(
        message=assistant(Text(text="Hello.")), stop="end", model="anthropic:m", response_id="r1"
    )


@pytest.mark.parametrize(
    ("given", "part"),
    [
        (text("a") | {"citations": None}, Text(text="a")),
        (text("a") | {"citations": [{"x": 1}]}, Text(text="a", extra={"citations": [{"x": 1}]})),
        (
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            Thinking(text="hm", extra={"signature": "s"}),
        ),
        ({"type": "redacted_thinking", "data": "d"}, Opaque(data={"type": "redacted_thinking", "data": "d"})),
        ({"type": "novel", "x": None}, Opaque(data={"type": "novel", "x": None})),
        ({"x": 1}, Opaque(data={"x": 1})),
        (
            use(given={"city": "Paris"}, caller={"type": "direct"}, toolset_name=None),
            ToolCall(call_id="t1", name="weather", arguments={"city": "Paris"}, extra={"caller": {"type": "direct"}}),
        ),
        (
            {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "q"}},
            ServerToolUse(
                name="web_search",
                data={"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "q"}},
            ),
        ),
        (
            {"type": "bash_code_execution_tool_result", "tool_use_id": "s1", "content": {}},
            ServerToolUse(
                name="bash_code_execution",
                data={"type": "bash_code_execution_tool_result", "tool_use_id": "s1", "content": {}},
            ),
        ),
    ],
)
def test_each_block_is_a_part(given: dict[str, Any], part: Part) -> None:
    answered = reply(given).message
    assert answered.parts == (part,)
    bound = part.extra or not isinstance(part, Text | ToolCall)
    assert answered.provider == ("anthropic" if bound else "")
    assert streamed(START, *block(given), ended(), STOP).message == answered


def test_empty_texts_are_no_parts() -> None:
    assert reply(text(""), text("\n"), text("b")).message.parts == (Text(text="\n"), Text(text="b"))


def test_a_container_is_kept_with_the_message_and_is_no_block() -> None:
    container = {"id": "k1", "expires_at": "2026-01-01T00:00:00Z"}
    expected = assistant(Text(text="a"), Opaque(data={"container": container}), provider="anthropic")
    assert reply(text(), container=container).message == expected
    assert reply(text(), container=None).message == assistant(Text(text="a"))
    assert streamed(START, *block(text()), ended(container=container), STOP).message == expected


@pytest.mark.parametrize(
    ("pieces", "arguments", "unparsed"),
    [
        ([], {}, None),
        ([""], {}, None),
        (["", '{"city"', ': "Paris"}'], {"city": "Paris"}, None),
        (['{"city": "Par'], {}, '{"city": "Par'),
        (["[1]"], {}, "[1]"),
        (['{"a": NaN}'], {}, '{"a": NaN}'),
        (['{"a": "\\ud83d', '\\ude0a"}'], {"a": "😊"}, None),
    ],
)
def test_arguments_are_what_the_pieces_make(pieces: list[str], arguments: dict[str, Any], unparsed: str | None) -> None:
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    found = streamed(START, *block(use(), *deltas), ended("tool_use"), STOP)
    assert found.stop == "tool_calls"
    assert found.tool_calls == (ToolCall(call_id="t1", name="weather", arguments=arguments, unparsed=unparsed),)


@pytest.mark.parametrize("blocks", [[text()], [use()], []])
def test_a_reply_that_does_not_say_why_it_stopped_is_not_known_to_be_whole(blocks: list[dict[str, Any]]) -> None:
    with pytest.raises(InvalidReply, match="why it stopped"):
        decode({"content": blocks, "stop_reason": None}, request())
    with pytest.raises(InvalidReply, match="why it stopped"):
        streamed(START, *(event for one in blocks for event in block(one)), ended(None), STOP)


@pytest.mark.parametrize(
    ("stop", "blocks", "expected"),
    [
        ("end_turn", [text()], "end"),
        ("stop_sequence", [text()], "end"),
        ("END_TURN", [text()], "end"),
        ("tool_use", [use()], "tool_calls"),
        ("end_turn", [use()], "tool_calls"),
        ("pause_turn", [use()], "tool_calls"),
        ("pause_turn", [text()], "paused"),
        ("max_tokens", [text()], "length"),
        ("max_tokens", [use()], "length"),
        ("refusal", [], "refused"),
        ("refusal", [use()], "refused"),
    ],
)
def test_why_it_stopped(stop: str | None, blocks: list[dict[str, Any]], expected: str) -> None:
    assert reply(*blocks, stop=stop).stop == expected


def test_what_a_model_was_stopped_at_is_no_call() -> None:
    assert reply(text(), use(), stop="refusal").message.parts == (Text(text="a"),)


def test_the_last_call_of_a_reply_that_was_cut_off_is_not_taken_for_whole() -> None:
    assert [call.unparsed for call in reply(use(), use(id="t2"), stop="max_tokens").tool_calls] == [None, ""]


def test_a_full_context_is_an_error_and_not_a_reply() -> None:
    with pytest.raises(ErrorInReply) as raised:
        reply(text(), stop="model_context_window_exceeded")
    assert raised.value.body == {
        "error": {"type": "model_context_window_exceeded", "message": "the reply filled the context window"}
    }


def test_ids_are_new_in_the_conversation() -> None:
    earlier = assistant(ToolCall(call_id="old", name="weather"))
    asked = request(Message.user("?"), earlier, Message.user("?"))
    found = reply(use(id="new"), use(id="old"), text(), use(id=""), asked=asked).tool_calls
    assert [(unmarked(call.call_id), call.provider_id) for call in found] == [
        ("new", None),
        ("call_1_1", "old"),
        ("call_1_2", None),
    ]


@pytest.mark.parametrize(
    ("started", "ends", "read"),
    [
        ({"input_tokens": 5, "output_tokens": 1}, [{"output_tokens": 9}], Usage(input_tokens=5, output_tokens=9)),
        (
            {"input_tokens": 5, "cache_creation_input_tokens": 3, "cache_read_input_tokens": 2},
            [{"input_tokens": 0, "output_tokens": 9, "output_tokens_details": {"thinking_tokens": 4}}],
            Usage(input_tokens=10, output_tokens=9, cached_tokens=2, cache_write_tokens=3, reasoning_tokens=4),
        ),
        (
            {"input_tokens": 5},
            [{"input_tokens": 7, "output_tokens": 1}, {"output_tokens": 2}],
            Usage(input_tokens=7, output_tokens=2),
        ),
        ({"input_tokens": "5", "output_tokens": -1, "cache_read_input_tokens": None}, [], Usage(input_tokens=5)),
        (None, [], Usage()),
    ],
)
def test_usage_is_cumulative_and_includes_what_was_cached(started: Any, ends: list[Any], read: Usage) -> None:
    start = {"type": "message_start", "message": {"usage": started}}
    assert streamed(start, *block(text()), *(ended(usage=usage) for usage in ends), ended(), STOP).usage == read


def test_deltas_are_given_on_as_they_come() -> None:
    assembler = Assembler(request())
    thought = block(
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "t"},
        {"type": "signature_delta", "signature": "s"},
    )
    said = block(text(""), {"type": "text_delta", "text": "a\u2028b"}, {"type": "text_delta", "text": ""}, index=1)
    events = [START, *thought, {"type": "ping"}, {"type": "novel_event"}, *said, *block(use(), index=2)]
    found = [delta for event in events for delta in assembler.feed(Event(json.dumps(event, ensure_ascii=False)))]
    assert found == [Delta("thinking", "t"), Delta("text", "a\u2028b")]


def test_a_line_separator_within_a_text_splits_nothing() -> None:
    events = [START, *block(text(""), {"type": "text_delta", "text": "a\u2028\u0085b"}), ended(), STOP]
    data = "".join(f"data: {json.dumps(event, ensure_ascii=False)}  \r\n\r\n" for event in events).encode()
    for place in range(len(data)):
        decoder, assembler = EventDecoder(), Assembler(request())
        for event in [*decoder.feed(data[:place]), *decoder.feed(data[place:])]:
            assembler.feed(event)
        assert assembler.finish().text == "a\u2028\u0085b"


WHOLE_STREAM = [
    START,
    *block(text(""), {"type": "text_delta", "text": "a"}),
    *block(use(), {"type": "input_json_delta", "partial_json": '{"city": "Paris"}'}, index=1),
    ended("tool_use"),
]


@pytest.mark.parametrize("count", range(len(WHOLE_STREAM) + 1))
def test_a_stream_without_its_last_word_is_no_reply(count: int) -> None:
    with pytest.raises(InvalidReply, match=r"'anthropic:m'") as raised:
        streamed(*WHOLE_STREAM[:count])
    assert raised.value.retry
    assert streamed(*WHOLE_STREAM, STOP).stop == "tool_calls"


@pytest.mark.parametrize(
    "events",
    [
        [START, {"type": "content_block_delta", "index": 3, "delta": {"type": "text_delta", "text": "a"}}],
        [START, {"type": "content_block_start", "index": None, "content_block": text()}],
        [START, {"type": "content_block_start", "index": 0}],
        [{"type": "content_block_start", "index": 0, "content_block": text()}],
        [STOP],
    ],
)
def test_a_stream_that_is_out_of_step_is_no_reply(events: list[dict[str, Any]]) -> None:
    with pytest.raises(InvalidReply):
        streamed(*events, STOP)


@pytest.mark.parametrize(
    ("events", "parts"),
    [
        ([*block(text("a"))], [Text(text="a")]),
        ([*block(use())], [ToolCall(call_id="t1", name="get_weather", arguments={})]),
        ([], []),
    ],
)
def test_a_stream_without_its_first_event_is_read(events: list[dict[str, Any]], parts: list[Part]) -> None:
    # As llama.cpp's is (build 11549) if its first token is half a letter, or no part of the text.
    whole = streamed(*events, ended("end_turn", usage={"output_tokens": 8}), STOP)
    assert [(part.kind, getattr(part, "text", "")) for part in whole.message.parts] == [
        (part.kind, getattr(part, "text", "")) for part in parts
    ]
    assert whole.usage.output_tokens == 8


def test_blocks_under_one_index_are_each_kept_unless_one_is_sent_again() -> None:
    """As of gateways that number badly, or begin a block once more."""
    paris, rome = ({"type": "input_json_delta", "partial_json": f'{{"city": "{city}"}}'} for city in ("Paris", "Rome"))
    first = {"type": "content_block_start", "index": 0, "content_block": use(id="t1")}
    events = [*block(text("a")), *block(text("a")), first, *block(use(id="t1"), paris), *block(use(id="t1"), paris)]
    whole = streamed(START, *events, *block(use(id="t2"), rome), ended("tool_use"), STOP)
    assert [getattr(part, "text", "") or getattr(part, "arguments", "") for part in whole.message.parts] == [
        *("a", "a"),
        {"city": "Paris"},
        {"city": "Rome"},
    ]


@pytest.mark.parametrize(
    ("given", "arguments", "unparsed"),
    [
        ('{"city": "Paris"}', {"city": "Paris"}, None),
        ('{"city": ', {}, '{"city": '),
        (["Paris"], {}, '["Paris"]'),
        (None, {}, None),
    ],
)
def test_an_input_that_is_no_object_is_never_taken_for_an_empty_one(given: Any, arguments: Any, unparsed: Any) -> None:
    block = {"type": "tool_use", "id": "t1", "name": "weather", "input": given}
    (call,) = reply(block, stop="tool_use").message.parts
    assert isinstance(call, ToolCall)
    assert (call.arguments, call.unparsed) == (arguments, unparsed)


@pytest.mark.parametrize("data", ["not json", "[1]", "7", '"x"'])
def test_an_event_that_is_no_event_is_refused(data: str) -> None:
    with pytest.raises(InvalidReply):
        Assembler(request()).feed(Event(data))


def test_a_reply_that_was_cut_before_its_first_block_may_have_null_for_them() -> None:
    """Ollama 0.17.4, of a call that max_tokens cut."""
    assert decode({"content": None, "stop_reason": "max_tokens"}, request()).stop == "length"


@pytest.mark.parametrize("body", [None, [], "x", {}, {"content": None}, {"content": [None]}, {"content": [7]}])
def test_a_body_without_a_reply_is_refused(body: object) -> None:
    with pytest.raises(InvalidReply, match="'anthropic:m'"):
        decode(body, request())


def test_a_loop_of_calls_is_refused() -> None:
    with pytest.raises(InvalidReply, match="2048 tool calls"):
        reply(*[use(id=f"t{number}") for number in range(2049)])
    with pytest.raises(InvalidReply, match="4096 blocks"):
        reply(*[text()] * 4097)


def error(kind: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": "x"}, "request_id": "req_9"}


@pytest.mark.parametrize(
    "event",
    [
        Event(json.dumps(error("overloaded_error")), "error"),
        Event(json.dumps(error("overloaded_error"))),
        Event('{"error": {"message": "x"}}'),
        Event('"x"', "error"),
        Event("Bad gateway", "error"),
    ],
)
def test_an_error_in_the_middle_of_a_stream_is_handed_on(event: Event) -> None:
    assembler = Assembler(request())
    assembler.feed(Event(json.dumps(START)))
    with pytest.raises(ErrorInReply):
        assembler.feed(event)
    with pytest.raises(ErrorInReply):
        decode(error("api_error"), request())


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
kinds = st.sampled_from(["text", "thinking", "tool_use", "server_tool_use", "web_search_tool_result", "novel", 7])
odd_blocks = st.dictionaries(
    st.sampled_from(["text", "thinking", "signature", "id", "name", "input", "tool_use_id", "citations", "data"]),
    json_values,
)


@given(
    said=st.text(max_size=40),
    thought=st.text(max_size=20),
    calls=st.lists(st.dictionaries(st.text(max_size=5), json_values, max_size=3), max_size=4),
    size=st.integers(min_value=1, max_value=9),
)
def test_any_reply_is_the_same_streamed_and_whole(
    said: str, thought: str, calls: list[dict[str, Any]], size: int
) -> None:
    def cut(whole: str) -> list[str]:
        return [whole[start : start + size] for start in range(0, len(whole), size)]

    thinking = {"type": "thinking", "thinking": thought, "signature": "s"}
    uses = [use("f", arguments, id=f"t{number}") for number, arguments in enumerate(calls)]
    events = [
        *block(
            thinking | {"thinking": "", "signature": ""},
            *({"type": "thinking_delta", "thinking": piece} for piece in cut(thought)),
            {"type": "signature_delta", "signature": "s"},
        ),
        *block(text(""), *({"type": "text_delta", "text": piece} for piece in cut(said)), index=1),
    ]
    for number, one in enumerate(uses):
        pieces = [{"type": "input_json_delta", "partial_json": piece} for piece in cut(json.dumps(one["input"]))]
        events += block(one | {"input": {}}, *pieces, index=number + 2)
    whole = reply(thinking, text(said), *uses, stop="end_turn", usage={"input_tokens": 5})
    assert streamed(START, *events, ended(), STOP) == whole
    assert [call.arguments for call in whole.tool_calls] == calls


@given(
    blocks=st.lists(st.tuples(kinds, odd_blocks).map(lambda pair: pair[1] | {"type": pair[0]}), max_size=3),
    body=st.dictionaries(st.sampled_from(["usage", "id", "container", "stop_reason"]), json_values),
)
def test_no_blocks_crash_the_reader(blocks: list[dict[str, Any]], body: dict[str, Any]) -> None:
    with contextlib.suppress(InvalidReply):  # no reason to stop, or one that nobody knows
        assert isinstance(decode({"content": blocks, **body}, request()), Reply)


@given(
    events=st.lists(
        st.fixed_dictionaries(
            {"type": st.sampled_from(["message_start", "content_block_start", "content_block_delta", "message_delta"])},
            optional={
                "index": st.sampled_from([0, 1, None]),
                "message": json_values | st.just({"id": "x"}),
                "content_block": st.tuples(kinds, odd_blocks).map(lambda pair: pair[1] | {"type": pair[0]}),
                "delta": odd_blocks | st.just({"type": "text_delta", "text": "x"}),
                "usage": json_values,
            },
        ),
        max_size=6,
    )
)
def test_no_events_crash_the_reader(events: list[dict[str, Any]]) -> None:
    with contextlib.suppress(InvalidReply, ErrorInReply):
        streamed(START, *events, STOP)
