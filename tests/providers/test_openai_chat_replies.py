"""Chat Completions: what every dialect's answer is read as, whole and streamed."""

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
from everturn.providers.base import Delta, Request
from everturn.providers.failures import ErrorInReply
from everturn.providers.json_values import object_in
from everturn.providers.openai_chat import Assembler, calls, decode
from everturn.records import Message, Reply, Text, Thinking, ToolCall, Usage
from tests.providers.drawn import unmarked
from tests.providers.messages import assistant


def request(*messages: Message) -> Request:
    return Request(model=Model("openai-chat:m"), messages=messages)


def reply(message: Any, *, finish: str | None = "stop", **more: Any) -> Reply:
    asked = more.pop("asked", request(Message.user("?")))
    body = {"id": "r1", "choices": [{"index": 0, "message": message, "finish_reason": finish}], **more}
    return decode(body, asked)


def entry(name: str = "weather", arguments: Any = "{}", **more: Any) -> dict[str, Any]:
    return {"function": {"name": name, "arguments": arguments}, **more}


def streamed(*deltas: dict[str, Any], finish: str | None = "stop", end: bool = True) -> Reply:
    assembler = Assembler(request(Message.user("?")))
    for delta in deltas:
        assembler.feed(Event(json.dumps({"id": "r1", "choices": [{"index": 0, "delta": delta}]})))
    assembler.feed(Event(json.dumps({"id": "r1", "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})))
    if end:
        assembler.feed(Event("[DONE]"))
    return assembler.finish()


def called(found: Reply) -> list[tuple[str, Any]]:
    return [(call.name, call.arguments if call.unparsed is None else call.unparsed) for call in found.tool_calls]


def test_a_reply_is_its_text_and_where_it_came_from() -> None:
    found = reply({"role": "assistant", "content": "Hello."})
    assert found == Reply(message=assistant(Text(text="Hello.")), stop="end", model="openai-chat:m", response_id="r1")


@pytest.mark.parametrize(("finish", "tokens", "whole"), [(None, 0, False), (None, 3, True), ("stop", 0, True)])
def test_a_reply_without_a_reason_and_a_count_broke_off(finish: str | None, tokens: int, whole: bool) -> None:
    """Ollama 0.17.4, of a model that repeats itself; other servers leave out one of the two."""
    usage = {"prompt_tokens": 0, "completion_tokens": tokens, "total_tokens": tokens}
    if whole:
        assert reply({"content": "ha ha"}, finish=finish, usage=usage).stop == "end"
    else:
        with pytest.raises(InvalidReply, match="why it stopped"):
            reply({"content": "ha ha"}, finish=finish, usage=usage)


@pytest.mark.parametrize(
    ("message", "parts"),
    [
        ({"content": "a", "tool_calls": None, "refusal": None, "reasoning_content": None}, ["a"]),
        ({"content": None}, []),
        ({"role": "assistant"}, []),
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}, None, 7]}, ["ab"]),
        ({"content": "a", "reasoning_content": "t"}, ["~t", "a"]),
        ({"content": "a", "reasoning": "t"}, ["~t", "a"]),
        ({"content": "a", "reasoning": "t", "reasoning_content": "t"}, ["~t", "a"]),
        ({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "t"}]}]}, ["~t"]),
        ({"content": [{"type": "thinking", "thinking": "t"}, {"type": "text", "text": "a"}]}, ["~t", "a"]),
        ({"refusal": "I won't."}, ["I won't."]),
        ({"content": "", "reasoning": {"no": "text"}}, []),
        ({"reasoning": ["t"], "reasoning_details": [{"type": "reasoning.text", "text": "t"}]}, ["~t"]),
    ],
)
def test_texts_and_thoughts_in_all_dialects(message: dict[str, Any], parts: list[str]) -> None:
    answered = reply(message).message
    found = answered.parts
    shown = [f"~{part.text}" if isinstance(part, Thinking) else part.text for part in found]  # type: ignore[union-attr]
    assert shown == parts
    assert answered.provider == ("openai-chat" if any(isinstance(part, Thinking) for part in found) else "")
    if message:
        assert streamed(message).message == reply(message).message


@pytest.mark.parametrize(
    ("arguments", "read"),
    [
        ('{"city": "Paris"}', {"city": "Paris"}),
        ({"city": "Paris"}, {"city": "Paris"}),
        ('"{\\"city\\": \\"Paris\\"}"', {"city": "Paris"}),
        ("", {}),
        (None, {}),
        (" ", {}),
        ('{"city": "Par', '{"city": "Par'),
        ("[1]", "[1]"),
        ([1], "[1]"),
        ("null", {}),
        ('{"a": NaN}', '{"a": NaN}'),
        ("[" * 5000, "[" * 5000),
        ('{"a":' * 900 + '"\\ud83d"' + "}" * 900, '{"a":' * 900 + '"\\ud83d"' + "}" * 900),
        ('{"a": "\\ud83d\\ude0a \\ud83d"}', {"a": "😊 \ufffd"}),
    ],
)
def test_arguments_in_all_dialects(arguments: Any, read: Any) -> None:
    message = {"tool_calls": [entry(arguments=arguments, id="x")]}
    assert called(reply(message)) == [("weather", read)]
    assert called(streamed({"tool_calls": [entry(arguments=arguments, id="x", index=0)]})) == [("weather", read)]


@pytest.mark.parametrize(
    ("finish", "message", "stop"),
    [
        ("stop", {"content": "a"}, "end"),
        (None, {"content": "a"}, "end"),
        ("tool_calls", {"content": "a"}, "end"),
        ({"type": "length", "length": 5}, {"content": "a"}, "length"),  # SGLang's own form
        ("length", {"content": "a"}, "length"),
        ("model_length", {"content": "a"}, "length"),
        ("content_filter", {"content": None}, "filtered"),
        ("stop", {"refusal": "no"}, "refused"),
        ("stop", {"tool_calls": [entry()]}, "tool_calls"),
        (None, {"tool_calls": [entry()]}, "tool_calls"),
        ("length", {"tool_calls": [entry()]}, "length"),
    ],
)
def test_why_it_stopped(finish: str | None, message: dict[str, Any], stop: str) -> None:
    assert reply(message, finish=finish).stop == stop


@pytest.mark.parametrize(("arguments", "unparsed"), [("", ""), ('{"city"', '{"city"'), ("{}", None)])
def test_the_last_call_of_a_reply_that_was_cut_off_is_not_taken_for_whole(arguments: str, unparsed: str | None) -> None:
    found = reply({"tool_calls": [entry(arguments=""), entry(arguments=arguments)]}, finish="length")
    assert [call.unparsed for call in found.tool_calls] == [None, unparsed]


@pytest.mark.parametrize(
    ("given_ids", "ids"),
    [
        (["a", "b"], [("a", None), ("b", None)]),
        (["", None], [("call_1_0", None), ("call_1_1", None)]),
        (["a", "a"], [("a", None), ("call_1_1", None)]),
        (["old", "call_1_1"], [("call_1_0", "old"), ("call_1_1", None)]),
        (["old", "old"], [("call_1_0", "old"), ("call_1_1", None)]),
        (["call_1_1", ""], [("call_1_1", None), ("call_1_1", None)]),
        ([7, "functions.f:0"], [("7", None), ("functions.f:0", None)]),
        (["x" * 200, "a b"], [("call_1_0", "x" * 200), ("call_1_1", "a b")]),
    ],
)
def test_every_call_gets_an_id_of_its_own(given_ids: list[Any], ids: list[tuple[str, str | None]]) -> None:
    earlier = assistant(ToolCall(call_id="old", name="weather"))
    asked = request(Message.user("?"), earlier, Message.user("?"))
    message = {"tool_calls": [entry(id=given_id) for given_id in given_ids]}
    calls = reply(message, asked=asked).tool_calls
    assert [(unmarked(call.call_id), call.provider_id) for call in calls] == ids
    assert len({"old", *(call.call_id for call in calls)}) == len(calls) + 1


@pytest.mark.parametrize(
    ("usage", "read"),
    [
        (None, Usage()),
        ({"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}, Usage(input_tokens=5, output_tokens=2)),
        (
            {
                "prompt_tokens": 5,
                "completion_tokens": 4,
                "prompt_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 1},
                "completion_tokens_details": {"reasoning_tokens": 2},
            },
            Usage(input_tokens=5, output_tokens=4, cached_tokens=3, cache_write_tokens=1, reasoning_tokens=2),
        ),
        ({"prompt_tokens": 5, "prompt_cache_hit_tokens": 4}, Usage(input_tokens=5, cached_tokens=4)),
        ({"prompt_tokens": 5, "cached_tokens": 4}, Usage(input_tokens=5, cached_tokens=4)),
        ({"prompt_tokens": 5, "num_cached_tokens": 4}, Usage(input_tokens=5, cached_tokens=4)),
        (
            {
                "prompt_tokens": 291,
                "completion_tokens": 26,
                "total_tokens": 506,
                "completion_tokens_details": {"reasoning_tokens": 189},
            },
            Usage(input_tokens=291, output_tokens=215, reasoning_tokens=189),
        ),
        ({"prompt_tokens": float("inf")}, Usage()),
        ({"prompt_tokens": "5", "completion_tokens": -1, "prompt_tokens_details": None}, Usage(input_tokens=5)),
    ],
)
def test_usage_in_all_dialects(usage: dict[str, Any] | None, read: Usage) -> None:
    assert reply({"content": "a"}, usage=usage).usage == read


@pytest.mark.parametrize("body", [None, [], "x", {}, {"choices": []}, {"choices": [None]}, {"choices": "x"}])
def test_a_body_without_a_reply_is_refused(body: object) -> None:
    with pytest.raises(InvalidReply, match="'openai-chat:m'"):
        decode(body, request(Message.user("?")))


def test_an_error_in_place_of_a_reply_is_handed_on() -> None:
    with pytest.raises(ErrorInReply):
        decode({"error": {"message": "overloaded", "code": 502}}, request(Message.user("?")))


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (None, "no message"),
        ({}, "no message"),
        ("Hello", "its message is not a JSON object"),
        ({"content": 7}, "its content can't be of type int"),
        ({"tool_calls": {"no": "list"}}, "a tool call without a function"),
        ({"tool_calls": "a list"}, "its tool_calls can't be of type str"),
        ({"tool_calls": [None]}, "a tool call without a function"),
        ({"content": "Hm.", "tool_calls": [{"index": "first", "id": "a"}]}, "a tool call without a function"),
    ],
)
def test_a_message_that_is_none_is_not_taken_for_an_empty_one(message: Any, problem: str) -> None:
    with pytest.raises(InvalidReply, match=problem):
        reply(message)


def test_a_call_may_come_before_its_function() -> None:
    bare, rest = {"index": 0, "id": "a"}, {"index": 0, "function": {"name": "look", "arguments": "{}"}}
    found = streamed({"tool_calls": [bare]}, {"tool_calls": [rest]})
    assert [(tool_call.call_id, tool_call.name) for tool_call in found.tool_calls] == [("a", "look")]


def test_a_loop_of_calls_is_refused() -> None:
    with pytest.raises(InvalidReply, match="2048 tool calls"):
        reply({"tool_calls": [entry()] * 2049})


@pytest.mark.parametrize(
    "text",
    [
        r'{"a": "}", "b": {"c": "\\"}}',
        r'{"\"}": {}, "b": "{\\\"}"}',
        r'{"a": {"b": {}}} ',
        "no { object } at all }",
        "}{}",
        '{"a": "b}',
    ],
)
@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_arguments_are_complete_when_their_text_is_an_object(text: str, size: int) -> None:
    call = calls.PartialCall(None, "")
    for at in range(0, len(text), size):
        call.pieces.append(text[at : at + size])
        assert call.is_complete == (call.text.endswith("}") and object_in(call.text) is not None)


def test_pieces_without_ids_are_not_read_all_over_again_with_each(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def reading(text: str) -> Any:
        read.append(text)
        return object_in(text)

    monkeypatch.setattr(calls, "object_in", reading)
    pieces = ['{"a":{}', *(f',"{number}":{{}}' for number in range(500)), "}"]
    (found,) = streamed(*({"tool_calls": [fragment(piece, index=0, name="look")]} for piece in pieces)).tool_calls
    assert len(found.arguments) == 501
    assert len(read) < 5


TWO = [("a", {"x": 1}), ("b", {"y": 2})]


def fragment(arguments: Any = None, **more: Any) -> dict[str, Any]:
    name = more.pop("name", None)
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    return {"function": function, **more}


@pytest.mark.parametrize(
    ("deltas", "calls"),
    [
        pytest.param(
            [
                [fragment(index=0, id="1", name="a")],
                [fragment('{"x"', index=0)],
                [fragment(": 1}", index=0)],
                [fragment(index=1, id="2", name="b")],
                [fragment('{"y": 2}', index=1)],
            ],
            TWO,
            id="openai",
        ),
        pytest.param(
            [
                [fragment('{"x"', index=0, id="1", name="a"), fragment('{"y"', index=1, id="2", name="b")],
                [fragment(": 2}", index=1), fragment(": 1}", index=0)],
            ],
            TWO,
            id="interleaved",
        ),
        pytest.param(
            [[fragment('{"x":1}', index=0, id="1", name="a")], [fragment('{"y":2}', index=0, id="2", name="b")]],
            TWO,
            id="ollama: index 0 for every call",
        ),
        pytest.param(
            [[fragment('{"x":1}', index=0, name="a")], [fragment('{"y":2}', index=0, name="b")]],
            TWO,
            id="index 0 for every call, and no ids",
        ),
        pytest.param(
            [[fragment('{"x":1}', id="1", name="a"), fragment('{"y":2}', id="2", name="b")]],
            TWO,
            id="mistral: no index",
        ),
        pytest.param(
            [[fragment('{"x":1}', name="a")], [fragment('{"y":2}', name="b")]], TWO, id="neither index nor id"
        ),
        pytest.param([[fragment({"x": 1}, name="a")], [fragment({"y": 2}, name="b")]], TWO, id="objects"),
        pytest.param([[fragment(index=1, id="1", name="a")], [fragment('{"x":1}', index=1)]], TWO[:1], id="from 1"),
        pytest.param(
            [[fragment("", index=0, id="1", name="a")], [fragment('{"x":1}', index=0, name="")]],
            TWO[:1],
            id="glm: an empty name",
        ),
        pytest.param(
            [[fragment('{"x"', index=0, id="1", name="a")], [fragment(":1}", index=0, id="1", name="a")]],
            TWO[:1],
            id="everything repeated",
        ),
        pytest.param(
            [[fragment('{"x"', index=0, name="a")], [fragment(":1}", index=0, name="a")]], TWO[:1], id="no id"
        ),
        pytest.param([[fragment('{"x"', id="1", name="a")], [fragment(":1}", id="1")]], TWO[:1], id="no index, one id"),
        pytest.param(
            [[fragment(index=0, id="1", name="a")], [fragment('{"x":1}', index=0, id="9")]],
            TWO[:1],
            id="a new id without a name",
        ),
        pytest.param([[{"index": 0, "id": "1", "function": {"name": "a", "arguments": None}}]], [("a", {})], id="null"),
        pytest.param(
            [[fragment(index=0, id="1", name="a")], [fragment(index=1, id="2", name="a")]],
            [("a", {}), ("a", {})],
            id="the same tool twice, without arguments",
        ),
        pytest.param([[{"index": 0, "custom": {"name": "x"}}]], [], id="what is no function call"),
    ],
)
def test_calls_in_all_dialects_of_streams(deltas: list[list[Any]], calls: list[tuple[str, Any]]) -> None:
    assert called(streamed(*({"tool_calls": delta} for delta in deltas))) == calls


@pytest.mark.parametrize("arguments", ['{"city": "Paris"}', {"city": "Paris"}])
def test_a_call_that_is_sent_once_more_is_one_call(arguments: Any) -> None:
    whole = fragment(arguments, id="c1", name="weather")
    assert called(streamed({"tool_calls": [whole]}, {"tool_calls": [whole]})) == [("weather", {"city": "Paris"})]


def test_a_function_call_whose_fields_are_null_is_none() -> None:
    nothing = {"role": "assistant", "content": "a", "function_call": {"name": None, "arguments": None}}
    assert [(read.stop, read.text) for read in (reply(nothing), streamed(nothing))] == [("end", "a")] * 2


PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


@pytest.mark.parametrize(
    ("message", "last_delta"),
    [
        ({"content": "a"}, {}),
        ({"content": "a"}, {"delta": {"role": "assistant", "content": ""}}),
        ({"content": [{"type": "text", "text": "a"}]}, {"delta": {}}),
        ({"reasoning_content": "t"}, {"delta": {}}),
        ({"tool_calls": [entry(index=0, id="1")]}, {"delta": {}}),
        ({"images": [PICTURE]}, {"delta": {}}),
    ],
)
def test_a_streams_whole_message_counts_unless_deltas_said_it_before(
    message: dict[str, Any], last_delta: dict[str, Any]
) -> None:
    last = {"choices": [{"index": 0, "message": message, "finish_reason": "stop", **last_delta}]}
    for chunks in ([last], [{"choices": [{"index": 0, "delta": message}]}, last]):  # the second one is MiniMax's way
        assembler = Assembler(request())
        for chunk in chunks:
            assembler.feed(Event(json.dumps(chunk)))
        assert assembler.finish().message == reply(message).message


@pytest.mark.parametrize(
    "thought",
    [
        {"reasoning": {"effort": "high", "text": "t"}},
        {"reasoning": {"content": [{"type": "text", "text": "t"}]}},
        {"reasoning_content": [{"type": "thinking", "thinking": "t"}]},
        {"reasoning_content": ["t"], "reasoning": "t"},
    ],
)
def test_a_thought_that_is_an_object_or_a_list_is_shown_and_does_not_go_back_as_a_text(thought: dict[str, Any]) -> None:
    assert reply({"content": "a", **thought}).message.parts == (Thinking(text="t"), Text(text="a"))


def test_details_that_come_after_their_text_do_not_say_it_again() -> None:
    reply = streamed({"reasoning": "t"}, {"reasoning_details": [{"type": "reasoning.text", "text": "t"}]})
    assert [part.text for part in reply.message.parts if isinstance(part, Thinking)] == ["t"]


def test_deltas_are_given_on_as_they_come() -> None:
    assembler = Assembler(request(Message.user("?")))
    given_on = [
        assembler.feed(Event(json.dumps({"choices": [{"delta": delta}]})))
        for delta in ({"role": "assistant", "content": ""}, {"reasoning": "t"}, {"content": "a"}, {"refusal": "r"})
    ]
    assert given_on == [[], [Delta("thinking", "t")], [Delta("text", "a")], [Delta("text", "r")]]


def test_a_character_cut_in_two_is_joined() -> None:
    assembler = Assembler(request(Message.user("?")))
    chunk = '{"choices":[{"delta":{"content":"HALF"}}]}'
    halves = [assembler.feed(Event(chunk.replace("HALF", half))) for half in (r"\ud83d", r"\ude0a")]
    assert halves == [[Delta("text", "\ufffd")]] * 2
    assembler.feed(Event("[DONE]"))
    assert assembler.finish().text == "😊"


@pytest.mark.parametrize(
    "last",
    [
        {"choices": [], "usage": {"prompt_tokens": 5}},
        {"choices": [{"delta": {}}], "usage": {"prompt_tokens": 5}},
        {"choices": [{"delta": {}, "usage": {"prompt_tokens": 5}}]},
        {"x_groq": {"usage": {"prompt_tokens": 5}}},
    ],
)
def test_usage_comes_from_wherever_a_stream_has_it(last: dict[str, Any]) -> None:
    assembler = Assembler(request(Message.user("?")))
    assembler.feed(Event('{"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}],"usage":null}'))
    assembler.feed(Event(json.dumps(last)))
    assert assembler.finish().usage == Usage(input_tokens=5)


@pytest.mark.parametrize(("finish", "end", "whole"), [("stop", False, True), (None, True, True), (None, False, False)])
def test_a_stream_is_whole_with_a_finish_reason_or_the_last_word(finish: str | None, end: bool, whole: bool) -> None:
    if whole:
        assert streamed({"content": "a"}, finish=finish, end=end).text == "a"
    else:
        with pytest.raises(InvalidReply, match="ended in the middle"):
            streamed({"content": "a"}, finish=finish, end=end)


@pytest.mark.parametrize("data", ["not json", "[1]", "7", '"x"'])
def test_an_event_that_is_no_chunk_is_refused(data: str) -> None:
    with pytest.raises(InvalidReply):
        Assembler(request(Message.user("?"))).feed(Event(data))


@pytest.mark.parametrize(
    "event",
    [
        Event('{"error": {"message": "overloaded"}}'),
        Event('{"error": {"message": "x"}, "choices": [{"delta": {"content": ""}, "finish_reason": "error"}]}'),
        Event('{"message": "x"}', "error"),
        Event('"x"', "error"),
    ],
)
def test_an_error_in_the_middle_of_a_stream_is_handed_on(event: Event) -> None:
    with pytest.raises(ErrorInReply):
        Assembler(request(Message.user("?"))).feed(event)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(
    text=st.text(max_size=40),
    thinking=st.text(max_size=20),
    calls=st.lists(
        st.tuples(
            st.from_regex(r"[a-z]{1,8}", fullmatch=True), st.dictionaries(st.text(max_size=5), json_values, max_size=3)
        ),
        max_size=4,
    ),
    size=st.integers(min_value=1, max_value=9),
)
def test_any_reply_is_the_same_streamed_and_whole(
    text: str, thinking: str, calls: list[tuple[str, dict[str, Any]]], size: int
) -> None:
    entries = [entry(name, json.dumps(arguments), id=f"id{number}") for number, (name, arguments) in enumerate(calls)]
    deltas: list[dict[str, Any]] = [{"role": "assistant"}]
    for key, value in (("reasoning_content", thinking), ("content", text)):
        deltas += [{key: value[start : start + size]} for start in range(0, len(value), size)]
    for index, whole in enumerate(entries):
        arguments = whole["function"]["arguments"]
        deltas.append({"tool_calls": [fragment("", index=index, id=whole["id"], name=whole["function"]["name"])]})
        deltas += [
            {"tool_calls": [fragment(arguments[start : start + size], index=index)]}
            for start in range(0, len(arguments), size)
        ]
    message = {"content": text, "reasoning_content": thinking, "tool_calls": entries}
    assert streamed(*deltas) == reply(message)
    assert called(reply(message)) == calls


@given(body=st.dictionaries(st.sampled_from(["choices", "usage", "id", "error", "x_groq"]), json_values))
def test_no_json_crashes_the_reader(body: dict[str, Any]) -> None:
    with contextlib.suppress(InvalidReply, ErrorInReply):
        decode(body, request(Message.user("?")))


@given(message=st.dictionaries(st.sampled_from(["content", "tool_calls", "refusal", "reasoning", "role"]), json_values))
def test_no_message_crashes_the_reader(message: dict[str, Any]) -> None:
    for read in (reply, streamed):
        with contextlib.suppress(InvalidReply):
            assert isinstance(read(message), Reply)
