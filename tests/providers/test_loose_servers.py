"""Servers and gateways that keep less to their protocol than its owner does: the same reply is read, and no call runs
with arguments that it does not have."""

from __future__ import annotations

import json
from typing import Any

import pytest

from everturn.http.sse import Event
from everturn.models import Model
from everturn.providers import anthropic_messages, gemini, openai_chat, openai_responses
from everturn.providers.base import Request, ToolSpec
from everturn.records import Message, Reply, Usage

Json = dict[str, Any]

TOOL = ToolSpec("find", "", {"type": "object", "properties": {"q": {"type": "string"}}})
ONE = '{"q":"1"}'
TWO = '{"q":"2"}'
PROTOCOLS = {"openai-chat": openai_chat, "openai": openai_responses, "anthropic": anthropic_messages, "google": gemini}


def asking(provider: str, **options: Any) -> Request:
    model = {"google": "gemini-3-flash"}.get(provider, "m")
    return Request(model=Model(f"{provider}:{model}"), messages=[Message.user("?")], tools=(TOOL,), **options)


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
        ("anthropic", claude(*use(1, ONE, name="find "))),
        ("google", [function_call({"q": "1"}, name="find<|channel|>commentary")]),
    ],
)
def test_a_call_is_the_tools_own_with_its_arguments(provider: str, events: list[Json]) -> None:
    [call] = streamed(provider, *events).message.tool_calls
    assert (call.name, call.arguments, call.unparsed) == ("find", {"q": "1"}, None)


def test_a_name_that_is_no_tools_stays_as_it_came() -> None:
    assert streamed("openai-chat", *chat_call(ONE, name="find2 <|x|>")).message.tool_calls[0].name == "find2 <|x|>"


ARGUMENTS = "response.function_call_arguments."


@pytest.mark.parametrize(
    ("provider", "events"),
    [
        (
            "openai",
            [
                added(item(1), output_index="0"),
                added(item(2), output_index="1"),
                {"type": f"{ARGUMENTS}delta", "output_index": "0", "delta": ONE},
                {"type": f"{ARGUMENTS}delta", "output_index": "1", "delta": TWO},
            ],
        ),
        (
            "openai",
            [
                added(item(1)),
                added(item(2)),
                {"type": f"{ARGUMENTS}delta", "item_id": "fc1", "delta": ONE},
                {"type": f"{ARGUMENTS}done", "item_id": "fc2", "arguments": TWO},
            ],
        ),
        (
            "openai",
            [
                added(item(1), output_index=0),
                {"type": f"{ARGUMENTS}delta", "output_index": 0, "delta": "{"},
                {"type": f"{ARGUMENTS}done", "output_index": 0, "arguments": ONE},
                {"type": "response.output_item.done", "output_index": 1, "item": item(2, arguments=TWO)},
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


def message(*blocks: Any) -> Json:
    return {"type": "message", "id": "m", "role": "assistant", "content": [*blocks]}


@pytest.mark.parametrize(
    ("provider", "events"),
    [
        ("openai-chat", [chat({"content": "Hi "}, index="0"), chat({"content": "you."}, "stop", index=0)]),
        ("openai-chat", [chat({"content": ["Hi ", "you."]}, "stop")]),
        ("openai-chat", [chat({"content": [{"type": "text", "text": {"value": "Hi you."}}]}, "stop")]),
        ("openai", [added(message()), {"type": "response.output_text.done", "text": "Hi you."}, completed()]),
        ("google", [candidate({"text": "Hi you."}, index="0")]),
    ],
)
def test_no_text_is_lost(provider: str, events: list[Json]) -> None:
    assert streamed(provider, *events).text == "Hi you."


def test_events_of_claude_are_what_their_names_say_and_done_ends_them() -> None:
    events = claude(*block({"type": "text", "text": ""}, {"type": "text_delta", "text": "Hi."}))[:-1]
    nameless = [Event(json.dumps({k: v for k, v in event.items() if k != "type"}), event["type"]) for event in events]
    assert streamed("anthropic", *nameless, Event("[DONE]")).text == "Hi."


@pytest.mark.parametrize("content", ["Hi.", ["Hi."], {"type": "text", "text": "Hi."}])
def test_a_whole_message_of_claude_may_have_its_text_bare(content: object) -> None:
    body = {"id": "m", "content": content, "stop_reason": "end_turn"}
    assert anthropic_messages.decode(body, asking("anthropic")).text == "Hi."


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
