"""Servers and gateways that keep less to their protocol than its owner does: the same reply is read, and no call runs
with arguments that it does not have."""

from __future__ import annotations

import json
from typing import Any

import pytest

from everturn.errors import InvalidReply
from everturn.http.sse import Event
from everturn.models import Model
from everturn.providers import anthropic_messages, gemini, openai_chat, openai_responses
from everturn.providers.base import Request, ToolSpec
from everturn.records import Message, Reply, Text, Usage

Json = dict[str, Any]

TOOL = ToolSpec("find", "", {"type": "object", "properties": {"q": {"type": "string"}}})
ONE = '{"q":"1"}'
TWO = '{"q":"2"}'
PROTOCOLS = {"openai-chat": openai_chat, "openai": openai_responses, "anthropic": anthropic_messages, "google": gemini}


def asking(provider: str, **options: Any) -> Request:
    model = {"google": "gemini-3-flash"}.get(provider, "m")
    options = {"tools": (TOOL,), **options}
    return Request(model=Model(f"{provider}:{model}"), messages=[Message.user("?")], **options)


def streamed(provider: str, *events: Json | Event, **options: Any) -> Reply:
    assembler = PROTOCOLS[provider].Assembler(asking(provider, **options))
    for event in events:
        assembler.feed(event if isinstance(event, Event) else Event(json.dumps(event)))
    reply: Reply = assembler.finish()
    return reply


def chat(delta: Json, finish: str | None = None, *, index: object = 0, **more: Any) -> Json:
    return {"id": "r", "choices": [{"index": index, "delta": delta, "finish_reason": finish}], **more}


def chat_call(arguments: str, *, name: str = "find") -> list[Json]:
    entry = {"index": 0, "id": "c1", "function": {"name": name, "arguments": arguments}}
    return [chat({"tool_calls": [entry]}), chat({}, "tool_calls")]


def item(number: int, **more: Any) -> Json:
    call = {"type": "function_call", "id": f"fc{number}", "call_id": f"c{number}", "name": "find", "arguments": ""}
    return call | more


def added(held: Json, **more: Any) -> Json:
    return {"type": "response.output_item.added", "item": held, **more}


def completed(*output: Json, **more: Any) -> Json:
    return {"type": "response.completed", "response": {"id": "r", "status": "completed", "output": [*output], **more}}


def finished(held: Json, **more: Any) -> Json:
    return {"type": "response.output_item.done", "item": held, **more}


def arguments(event: str, text: str, **more: Any) -> Json:
    field = {"delta": "delta", "done": "arguments"}[event]
    return {"type": f"response.function_call_arguments.{event}", field: text, **more}


def claude(*events: Json, usage: Json | None = None, ends: Json | None = None) -> list[Json]:
    start = {"type": "message_start", "message": {"id": "m", "usage": usage or {}}}
    end = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": ends or {}}
    return [start, *events, end, {"type": "message_stop"}]


def block(start: Json, *deltas: Json, index: Any = 0) -> list[Json]:
    place = {} if index is None else {"index": index}
    return [
        {"type": "content_block_start", **place, "content_block": start},
        *({"type": "content_block_delta", **place, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", **place},
    ]


def use(number: int, *deltas: object, index: Any = 0, name: str = "find") -> list[Json]:
    start = {"type": "tool_use", "id": f"c{number}", "name": name, "input": {}}
    return block(start, *({"type": "input_json_delta", "partial_json": delta} for delta in deltas), index=index)


def candidate(*parts: Json, index: Any = 0, **more: Any) -> Json:
    return {"candidates": [{"content": {"parts": [*parts]}, "finishReason": "STOP", "index": index}], **more}


def function_call(arguments: object, *, name: str = "find") -> Json:
    return candidate({"functionCall": {"name": name, "args": arguments}})


@pytest.mark.parametrize(
    ("provider", "events"),
    [
        ("openai-chat", chat_call("{}" + ONE)),
        ("openai", [completed(item(1, arguments="{}" + ONE))]),
        ("anthropic", claude(*use(1, "{}", ONE))),
        ("google", [function_call("{}" + ONE)]),
        ("google", [function_call(ONE)]),
        ("anthropic", claude(*use(1, {"q": "1"}))),
        ("openai-chat", chat_call(ONE, name=" find\n")),
        ("openai", [completed(item(1, name="find<|channel|>commentary", arguments=ONE))]),
        ("openai", [added(item(1)), arguments("delta", ONE), finished(item(1)), completed()]),
        ("openai", [finished(item(1)), completed(item(1, arguments=ONE))]),
        ("anthropic", claude(*use(1, ONE, name="find "))),
        ("google", [function_call({"q": "1"}, name="find<|channel|>commentary")]),
    ],
)
def test_a_call_is_the_tools_own_with_its_arguments(provider: str, events: list[Json]) -> None:
    [call] = streamed(provider, *events).message.tool_calls
    assert (call.name, call.arguments, call.unparsed) == ("find", {"q": "1"}, None)


def test_a_name_that_is_no_tools_stays_as_it_came() -> None:
    assert streamed("openai-chat", *chat_call(ONE, name="find2 <|x|>")).message.tool_calls[0].name == "find2 <|x|>"


@pytest.mark.parametrize(
    ("provider", "events"),
    [
        (
            "openai",
            [
                added(item(1), output_index="0"),
                added(item(2), output_index="1"),
                arguments("delta", ONE, output_index="0"),
                arguments("delta", TWO, output_index="1"),
            ],
        ),
        (
            "openai",
            [
                added(item(1)),
                added(item(2)),
                arguments("delta", ONE, item_id="fc1"),
                arguments("done", TWO, item_id="fc2"),
            ],
        ),
        (
            "openai",
            [
                added(item(1), output_index=0),
                arguments("delta", "{", output_index=0),
                arguments("done", ONE, output_index=0),
                finished(item(2, arguments=TWO), output_index=1),
            ],
        ),
        (
            "openai",
            [
                added(item(1), output_index=0),
                added(item(2), output_index=0),
                arguments("delta", ONE, output_index=0, item_id="fc1"),
                arguments("delta", TWO, output_index=0, item_id="fc2"),
            ],
        ),
        ("anthropic", [*use(1, ONE, index="0"), *use(2, TWO, index="1")]),
        ("anthropic", [*use(1, ONE, index=None), *use(2, TWO, index=None)]),
    ],
)
def test_two_calls_are_told_apart_by_an_index_that_is_a_text_or_missing(provider: str, events: list[Json]) -> None:
    whole = claude(*events) if provider == "anthropic" else [*events, completed()]
    calls = streamed(provider, *whole).message.tool_calls
    assert [(call.call_id, call.arguments, call.unparsed) for call in calls] == [
        ("c1", {"q": "1"}, None),
        ("c2", {"q": "2"}, None),
    ]


def message(*blocks: Any, **more: Any) -> Json:
    return {"type": "message", "id": "m", "role": "assistant", "content": [*blocks], **more}


def text(words: str) -> Json:
    return {"type": "output_text", "text": words, "annotations": []}


def piece(words: str, **more: Any) -> Json:
    return {"type": "response.output_text.delta", "delta": words, **more}


def whole_text(words: str, **more: Any) -> Json:
    return {"type": "response.output_text.done", "text": words, **more}


REASONING = {"type": "reasoning", "id": "rs", "summary": []}
HI = message(text("Hi you."))
MESSAGE_START = claude()[0]
SAYS = {"type": "text", "text": ""}


def spoken(words: str) -> Json:
    return {"type": "text_delta", "text": words}


def goes_on(words: str) -> Json:
    return {"type": "content_block_delta", "index": 0, "delta": spoken(words)}


@pytest.mark.parametrize(
    ("provider", "events"),
    [
        ("openai-chat", [chat({"content": "Hi "}, index="0"), chat({"content": "you."}, "stop", index=0)]),
        ("openai-chat", [chat({"content": ["Hi ", "you."]}, "stop")]),
        ("openai-chat", [chat({"content": [{"type": "text", "text": {"value": "Hi you."}}]}, "stop")]),
        ("openai-chat", [chat({"content": "Hi you.", "tool_calls": [None]}, "stop")]),
        ("openai-chat", [chat({"content": "Hi you.", "refusal": "Hi you."}, "stop")]),
        ("openai-chat", [chat({"content": "Hi you."}, "stop"), chat({}, "FINISH_REASON_UNSPECIFIED")]),
        ("openai", [added(message()), whole_text("Hi you."), completed()]),
        ("google", [candidate({"text": "Hi you."}, index="0")]),
    ],
)
def test_no_text_is_lost(provider: str, events: list[Json]) -> None:
    assert streamed(provider, *events).text == "Hi you."


WHOLE = ["Hi you."]
PARTED = ["Hi ", "you."]
REFUSAL = message({"type": "refusal", "refusal": "you."})


def under(index: int, *events: Json) -> list[Json]:
    """The events, under this index."""
    return [{"output_index": index, **event} for event in events]


@pytest.mark.parametrize(
    ("events", "texts"),
    [
        pytest.param([whole_text("Hi you.")], WHOLE, id="its end alone"),
        pytest.param([piece("Hi you."), whole_text("")], WHOLE, id="an empty end"),
        pytest.param([piece("Hi you."), finished(message())], WHOLE, id="an item that ends without content"),
        pytest.param(
            [added(message()), piece("Hi you."), finished(message(text("")))],
            WHOLE,
            id="an item that ends with an empty block",
        ),
        pytest.param([added(REASONING), piece("Hi "), piece("you.")], WHOLE, id="no index"),
        pytest.param(under(0, added(REASONING), piece("Hi "), piece("you.")), WHOLE, id="a reasoning's index"),
        pytest.param(
            under(0, added(REASONING), {"type": "response.refusal.delta", "delta": "Hi you."}), WHOLE, id="a refusal"
        ),
        pytest.param(
            [*under(0, added(REASONING), piece("Hi you.")), *under(1, finished(HI))],
            WHOLE,
            id="a reasoning's index, and an item with its own",
        ),
        pytest.param(
            [*under(0, added(REASONING)), *under(1, piece("Hi you.", item_id="rs"))], WHOLE, id="a reasoning's name"
        ),
        pytest.param(
            under(0, added(REASONING), piece("Hi "), added(message()), piece("you.")),
            WHOLE,
            id="an item that begins late",
        ),
        pytest.param(
            [
                *under(0, added(REASONING)),
                *under(1, added(message())),
                *under(0, piece("Hi you.")),
                *under(1, finished(HI)),
            ],
            WHOLE,
            id="a reasoning's index, and an item before it",
        ),
        pytest.param(
            [*under(0, finished(message(text("Hi "), id="m1"))), *under(1, added(REASONING), piece("you."))],
            PARTED,
            id="a reasoning's index after another message",
        ),
        pytest.param(
            [
                *under(0, added(message(id="m1"))),
                *under(1, added(message(id="m2"))),
                *under(2, added(REASONING), piece("you.", item_id="m2"), piece("Hi ", item_id="m1")),
            ],
            PARTED,
            id="a reasoning's index, and the names of the items",
        ),
        pytest.param(
            [
                *under(0, added(message(id="m1"))),
                *under(1, added(message(id="m2"))),
                *under(2, added(REASONING), piece("you.")),
                *under(0, piece("Hi ")),
            ],
            PARTED,
            id="a reasoning's index, and two open items",
        ),
        pytest.param(
            [*under(0, finished(message(text("Hi "), id=None))), *under(1, added(message()), piece("you."))],
            PARTED,
            id="an item without a name",
        ),
        pytest.param(
            under(0, piece("Hi "), finished(message(text("Hi "), id="m1")), finished(message(text("you."), id="m2"))),
            PARTED,
            id="one index for two items",
        ),
        pytest.param(
            [*under(0, added(message()), piece("Hi ")), *under(1, piece("yo"), piece("u."))],
            PARTED,
            id="an index of its own",
        ),
        pytest.param(
            [*under(0, piece("Hi ")), *under(2, added(message()), piece("you."), finished(message(text("you."))))],
            PARTED,
            id="another item after it",
        ),
        pytest.param([*under(0, piece("Hi ")), *under(1, finished(REFUSAL))], PARTED, id="a refusal after it"),
        pytest.param(under(0, piece("Hi you."), finished(item(1, arguments=ONE))), WHOLE, id="the index of a call"),
        pytest.param(under(0, finished(HI), piece("Hi you.")), WHOLE, id="after the item's end"),
    ],
)
def test_no_streamed_text_of_responses_is_lost_or_said_twice(events: list[Json], texts: list[str]) -> None:
    parts = streamed("openai", *events, completed()).message.parts
    assert [part.text for part in parts if isinstance(part, Text)] == texts


def test_an_item_that_comes_after_its_text_has_its_own_fields_and_place() -> None:
    [part] = streamed("openai", piece("Hi "), added(message()), piece("you."), completed()).message.parts
    assert isinstance(part, Text)
    assert part.extra["item"]["id"] == "m"
    events = [*under(0, piece("Hi you.")), *under(1, finished(item(1, arguments=ONE))), *under(2, finished(HI))]
    assert [part.kind for part in streamed("openai", *events, completed()).message.parts] == ["tool_call", "text"]


def test_arguments_of_no_call_are_no_part() -> None:
    assert streamed("openai", arguments("delta", ONE), completed()).message.parts == ()


CUSTOM = {"type": "custom_tool_call", "id": "ct", "call_id": "c1", "name": "sh", "input": ""}


@pytest.mark.parametrize(
    ("held", "kind", "end"),
    [
        (REASONING, "reasoning_summary_text", []),
        (REASONING, "reasoning_text", []),
        (CUSTOM, "custom_tool_call_input", under(0, finished(CUSTOM))),
    ],
)
def test_a_piece_goes_to_the_item_that_it_names(held: Json, kind: str, end: list[Json]) -> None:
    named = {"type": f"response.{kind}.delta", "delta": "Hi you.", "item_id": held["id"]}
    events = [*under(0, added(held), added(message()), named), *end]
    reply = streamed("openai", *events, completed(), raw_tools=[{"type": "custom", "name": "sh"}])
    assert "Hi you." in repr(reply.message.parts[0])


@pytest.mark.parametrize(
    ("events", "output"),
    [
        pytest.param([finished(message())], [HI], id="the item is empty"),
        pytest.param([piece("Hi "), finished(message())], [HI], id="the item is empty, and the deltas are not all"),
        pytest.param([added(message()), piece("Hi you.")], [message()], id="the response is empty"),
        pytest.param(
            [
                finished(message(text("Hi "), id="m1"), output_index=0),
                finished(message(id="m2"), output_index=1),
                piece("you.", output_index=1),
            ],
            [message(text("Hi "), id="m1")],
            id="the response has another item",
        ),
        pytest.param(
            [added(REASONING, output_index=0), piece("Hi ", output_index=0)], [REASONING, HI], id="no item began"
        ),
        pytest.param(
            [*under(0, finished(message(id="m1"))), *under(1, finished(message(text("Hi you."), id="m2")))],
            [message(text("Hi you."), id="m2")],
            id="the response lacks an empty item",
        ),
        pytest.param(
            [*under(0, added({**REASONING, "content": [text("Hm.")]})), *under(1, added(message()))],
            [message(id="m1"), HI],
            id="the response has another item in a reasoning's place",
        ),
        pytest.param([], [{"role": "assistant", "content": [text("Hi you.")]}], id="no type"),
        pytest.param(
            [finished({"role": "assistant", "content": []}), piece("Hi you.")], [], id="no type, and no content"
        ),
    ],
)
def test_the_fullest_text_of_an_item_counts(events: list[Json], output: list[Json]) -> None:
    assert streamed("openai", *events, completed(*output)).text == "Hi you."


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([*block(SAYS, spoken("Hi "))[:2], MESSAGE_START, goes_on("you.")], id="in a block"),
        pytest.param(
            [*block(SAYS, spoken("Hi ")), MESSAGE_START, *block(SAYS, spoken("you."), index=1)], id="between blocks"
        ),
        pytest.param([*block(SAYS, spoken("Hi you.")), MESSAGE_START], id="after them"),
        pytest.param(
            [
                *block(SAYS, spoken("Hi ")),
                MESSAGE_START,
                *block({"type": "text", "text": "Hi "}),
                *block({"type": "text", "text": "you."}),
            ],
            id="with all blocks again, under one index",
        ),
        pytest.param(
            [*block(SAYS, spoken("Hi "))[:2], MESSAGE_START, *block(SAYS, spoken("Hi you."))], id="with its block again"
        ),
        pytest.param(
            [
                *block(SAYS, spoken("H"))[:2],
                MESSAGE_START,
                goes_on("i "),
                *block(SAYS)[1:],
                *block(SAYS, spoken("you.")),
            ],
            id="in a block of a gateway that has one index for all",
        ),
        pytest.param([*block(SAYS, spoken("Hi you.")), claude()[1], MESSAGE_START], id="after the end's reason"),
    ],
)
def test_a_message_of_claude_whose_start_comes_again_goes_on(events: list[Json]) -> None:
    start, *end = claude(usage={"input_tokens": 3, "output_tokens": 1})
    reply = streamed("anthropic", start, *events, *(end[1:] if claude()[1] in events else end))
    assert (reply.text, reply.usage.input_tokens) == ("Hi you.", 3)


def test_events_of_claude_are_what_their_names_say_and_done_ends_them() -> None:
    events = claude(*block({"type": "text", "text": ""}, {"type": "text_delta", "text": "Hi."}))[:-1]
    nameless = [Event(json.dumps({k: v for k, v in event.items() if k != "type"}), event["type"]) for event in events]
    assert streamed("anthropic", *nameless, Event("[DONE]")).text == "Hi."


@pytest.mark.parametrize("content", ["Hi.", ["Hi."], {"type": "text", "text": "Hi."}])
def test_a_whole_message_of_claude_may_have_its_text_bare(content: object) -> None:
    body = {"id": "m", "content": content, "stop_reason": "end_turn"}
    assert anthropic_messages.decode(body, asking("anthropic")).text == "Hi."


def test_a_call_without_arguments_ends_with_the_name_of_the_next_tool() -> None:
    entries = [
        {"index": 0, "function": {"name": name, "arguments": text}} for name, text in [("now", ""), ("find", ONE)]
    ]
    tools = (TOOL, ToolSpec("now"))
    events = [*(chat({"tool_calls": [entry]}) for entry in entries), chat({}, "tool_calls")]
    calls = streamed("openai-chat", *events, tools=tools).message.tool_calls
    assert [(call.name, call.arguments) for call in calls] == [("now", {}), ("find", {"q": "1"})]


@pytest.mark.parametrize(
    ("names", "name"), [(["re", "find"], "refind"), (["find", "all"], "findall"), (["find", "find"], "find")]
)
def test_the_name_of_one_call_may_come_in_pieces_or_twice(names: list[str], name: str) -> None:
    pieces = zip(names, ["", ONE], strict=True)
    entries = [{"index": 0, "function": {"name": named, "arguments": text}} for named, text in pieces]
    events = [*(chat({"tool_calls": [entry]}) for entry in entries), chat({}, "tool_calls")]
    reply = streamed("openai-chat", *events, tools=(TOOL, ToolSpec(name)))
    assert [(call.name, call.arguments) for call in reply.message.tool_calls] == [(name, {"q": "1"})]


def test_a_reason_that_is_unspecified_takes_none_back() -> None:
    unspecified = {"candidates": [{"finishReason": "FINISH_REASON_UNSPECIFIED"}]}
    cut = candidate({"text": "Hi"})
    cut["candidates"][0]["finishReason"] = "MAX_TOKENS"
    assert streamed("google", unspecified, cut, unspecified, {"candidates": [{"index": 0}]}).stop == "length"
    with pytest.raises(InvalidReply, match="does not know"):
        gemini.decode(unspecified, asking("google"))


def test_what_only_deltas_say_of_thoughts_and_custom_input_is_read() -> None:
    events = [
        added({"type": "reasoning", "id": "rs", "summary": []}, output_index=0),
        {"type": "response.reasoning_summary_text.delta", "output_index": 0, "summary_index": 0, "delta": "Hm."},
        {"type": "response.reasoning_summary_text.done", "output_index": 0, "summary_index": 1, "text": "So."},
        added({"type": "custom_tool_call", "id": "ct", "call_id": "c1", "name": "sh", "input": ""}, output_index=1),
        {"type": "response.custom_tool_call_input.delta", "output_index": 1, "delta": "ls"},
    ]
    reply = streamed("openai", *events, completed(), raw_tools=[{"type": "custom", "name": "sh"}])
    assert [part.text for part in reply.message.parts[:2]] == ["Hm.", "So."]  # type: ignore[union-attr]
    assert reply.message.tool_calls[0].arguments == {"input": "ls"}


COUNTED = {"prompt_tokens": "3", "completion_tokens": 2}


@pytest.mark.parametrize(
    ("provider", "events"),
    [
        (
            "openai-chat",
            [chat({"content": "x"}, "stop", usage=COUNTED), {"choices": [], "usage": {"prompt_tokens": 0}}],
        ),
        ("openai", [completed(message({"type": "output_text", "text": "x"}), usage=COUNTED)]),
        ("anthropic", claude(*block({"type": "text", "text": "x"}), usage=COUNTED, ends={"completion_tokens": 0})),
        (
            "google",
            [
                candidate({"text": "x"}, usageMetadata={"promptTokenCount": "3", "candidatesTokenCount": 2}),
                candidate(usageMetadata={"promptTokenCount": 0}),
            ],
        ),
    ],
)
def test_counts_may_be_texts_and_zeros_take_none_back(provider: str, events: list[Json]) -> None:
    assert streamed(provider, *events).usage == Usage(input_tokens=3, output_tokens=2)
