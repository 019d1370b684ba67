"""ToolCall.parse: whatever shape a vendor gives a call, as dicts and as their SDKs' objects."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from everturn import ToolCall, tool
from tests.support.vendors import (
    anthropic_types,
    chat_types,
    gemini_types,
    pydantic_ai_messages,
    responses_types,
)

CITY = {"city": "Paris"}
TEXT = '{"city": "Paris"}'

CHAT = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": TEXT}}
CUSTOM = {"id": "c1", "type": "custom", "custom": {"name": "weather", "input": "Paris"}}
ITEM = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": TEXT, "id": "fc_1"}
CUSTOM_ITEM = {"type": "custom_tool_call", "call_id": "c1", "name": "weather", "input": "Paris", "id": "ctc_1"}
USE = {"type": "tool_use", "id": "c1", "name": "weather", "input": CITY}
SERVER_USE = {"type": "server_tool_use", "id": "c1", "name": "web_search", "input": {"query": "x"}}

OTHER_LIBRARIES = [
    {"id": "c1", "type": "function", "name": "weather", "arguments": TEXT},  # toolregistry 0.19
    SimpleNamespace(id="c1", type="function", name="weather", arguments=TEXT),
    {"type": "tool_call", "tool_call_id": "c1", "tool_name": "weather", "tool_input": CITY, "tool_type": "function"},
    {"type": "tool_call", "id": "c1", "name": "weather", "args": CITY},  # LangChain 1.7
    {"type": "tool-call", "toolCallId": "c1", "toolName": "weather", "input": CITY},  # the AI SDK 7
    {"toolUse": {"toolUseId": "c1", "name": "weather", "input": CITY}},  # Bedrock's Converse
    {"tool_id": "c1", "tool_name": "weather", "tool_kwargs": CITY},  # LlamaIndex 0.14
    {"id": "c1", "tool_name": "weather", "arguments": CITY, "extra": None},  # haystack 3.4
    {"type": "function_call", "id": "c1", "name": "weather", "arguments": CITY},  # Google's Interactions
]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (CHAT, ToolCall(call_id="c1", name="weather", arguments=CITY)),
        ({name: CHAT[name] for name in ("id", "function")}, ToolCall(call_id="c1", name="weather", arguments=CITY)),
        (
            CHAT | {"extra_content": {"google": {"thought_signature": "s"}}},
            ToolCall(
                call_id="c1",
                name="weather",
                arguments=CITY,
                extra={"extra_content": {"google": {"thought_signature": "s"}}},
            ),
        ),
        (CUSTOM, ToolCall(call_id="c1", name="weather", arguments={"input": "Paris"}, extra={"type": "custom"})),
        (ITEM, ToolCall(call_id="c1", name="weather", arguments=CITY, extra={"id": "fc_1"})),
        (USE, ToolCall(call_id="c1", name="weather", arguments=CITY)),
        (
            {"functionCall": {"id": "c1", "name": "weather", "args": CITY}, "thoughtSignature": "c2ln"},
            ToolCall(call_id="c1", name="weather", arguments=CITY, extra={"thoughtSignature": "c2ln"}),
        ),
        (
            {"function_call": {"id": "c1", "name": "weather", "args": CITY}, "thought_signature": b"sig"},
            ToolCall(call_id="c1", name="weather", arguments=CITY, extra={"thoughtSignature": "c2ln"}),
        ),
        ({"id": "c1", "name": "weather"}, ToolCall(call_id="c1", name="weather")),
        *((form, ToolCall(call_id="c1", name="weather", arguments=CITY)) for form in OTHER_LIBRARIES),
        (
            {"id": "c1", "type": "custom", "name": "weather", "arguments": TEXT},
            ToolCall(call_id="c1", name="weather", arguments=CITY, extra={"type": "custom"}),
        ),
        ({"id": "c1", "name": "weather", "arguments": TEXT}, ToolCall(call_id="c1", name="weather", arguments=CITY)),
        (
            SimpleNamespace(id="c1", type="function", function=SimpleNamespace(name="weather", arguments=TEXT)),
            ToolCall(call_id="c1", name="weather", arguments=CITY),
        ),
        ({"kind": "tool_call", "call_id": "c1", "name": "weather"}, ToolCall(call_id="c1", name="weather")),
        (ToolCall(call_id="c1", name="weather"), ToolCall(call_id="c1", name="weather")),
    ],
)
def test_every_vendors_call_is_read(given: Any, expected: ToolCall) -> None:
    assert ToolCall.parse(given) == expected


def test_every_sdks_object_is_read() -> None:
    call = gemini_types.FunctionCall(id="c1", name="weather", args=CITY)
    plain = [
        chat_types.ChatCompletionMessageFunctionToolCall(**CHAT),  # type: ignore[arg-type]
        anthropic_types.ToolUseBlock(**USE),  # type: ignore[arg-type]
        call,
        pydantic_ai_messages.ToolCallPart("weather", CITY, "c1"),  # pydantic-ai 2.68
        pydantic_ai_messages.ToolCallPart("weather", TEXT, "c1", id="fc_1", provider_name="openai"),
    ]
    others: list[tuple[Any, dict[str, Any]]] = [
        (
            chat_types.ChatCompletionMessageCustomToolCall(**CUSTOM),  # type: ignore[arg-type]
            {"arguments": {"input": "Paris"}, "extra": {"type": "custom"}},
        ),
        (responses_types.ResponseFunctionToolCall(**ITEM), {"extra": {"id": "fc_1"}}),  # type: ignore[arg-type]
        (
            responses_types.ResponseCustomToolCall(**CUSTOM_ITEM),  # type: ignore[arg-type]
            {"arguments": {"input": "Paris"}, "extra": {"type": "custom_tool_call", "id": "ctc_1"}},
        ),
        (
            anthropic_types.ServerToolUseBlock(**SERVER_USE),  # type: ignore[arg-type]
            {"name": "web_search", "arguments": {"query": "x"}, "extra": {"type": "server_tool_use"}},
        ),
        (
            gemini_types.Part(function_call=call, thought_signature=b"sig"),
            {"extra": {"thoughtSignature": "c2ln"}},
        ),
    ]
    for given, fields in [*((given, {}) for given in plain), *others]:
        expected = ToolCall(**{"call_id": "c1", "name": "weather", "arguments": CITY, **fields})
        assert ToolCall.parse(given) == expected, type(given)


@pytest.mark.parametrize(
    ("arguments", "read", "unparsed"),
    [
        ("", {}, None),
        (None, {}, None),
        ('{"city": "Par', {}, '{"city": "Par'),
        ("[1]", {}, "[1]"),
        ('{"a": NaN}', {}, '{"a": NaN}'),
        ('{"a": 1e999}', {}, '{"a": 1e999}'),
        ({"a": [{"b": float("-inf")}]}, {}, '{"a": [{"b": -Infinity}]}'),
        ('{"a": 9007199254740993}', {"a": 9007199254740993}, None),
        ("[" * 100_000, {}, "[" * 100_000),
        (CITY, CITY, None),
    ],
)
def test_arguments_that_are_no_object_are_kept_as_they_came(arguments: Any, read: Any, unparsed: str | None) -> None:
    call = ToolCall.parse({"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}})
    assert (call.arguments, call.unparsed) == (read, unparsed)


def test_a_call_without_an_id_gets_one_of_its_own() -> None:
    given = {"functionCall": {"name": "weather", "args": CITY}}
    first, second = ToolCall.parse(given), ToolCall.parse(given)
    assert first.call_id.startswith("call_")
    assert first.call_id != second.call_id


@pytest.mark.parametrize("name", ["args", "arguments", "input", "parameters"])
@pytest.mark.parametrize("value", [CITY, TEXT], ids=["object", "text"])
@pytest.mark.parametrize(
    "shape",
    [
        {"name": "weather"},
        {"type": "tool_use", "id": "c1", "name": "weather"},
        {"type": "function_call", "call_id": "c1", "name": "weather"},
        {"type": "function", "function": {"name": "weather"}},
    ],
    ids=["bare", "tool_use", "function_call", "function"],
)
def test_arguments_are_read_under_each_of_their_usual_names(shape: Any, name: str, value: Any) -> None:
    shape = shape | {"function": shape["function"] | {name: value}} if "function" in shape else shape | {name: value}
    call = ToolCall.parse(shape)
    assert (call.name, call.arguments, call.unparsed, call.extra) == ("weather", CITY, None, {})


SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}


@pytest.mark.parametrize(
    "given",
    [
        {"name": "weather", "kwargs": CITY},
        {"name": "weather", "args": {}, "kwargs": CITY},
        {"type": "function", "function": {"name": "weather", "kwargs": CITY}},
        {"type": "function", "function": {"name": "weather", "params": CITY}},
        {"type": "tool_use", "id": "c1", "name": "weather", "kwargs": CITY},
        {"name": "weather", "args": CITY, "arguments": {"city": "Rome"}},
        SimpleNamespace(name="weather", kwargs=CITY),
    ],
)
def test_arguments_that_would_be_dropped_are_a_type_error(given: Any) -> None:
    with pytest.raises(TypeError):
        ToolCall.parse(given)


@pytest.mark.parametrize(
    "given",
    [
        {"name": "Ada", "email": "ada@example.com"},
        {"role": "tool", "name": "weather", "content": "14 degrees"},
        {"name": "weather", "description": "The weather.", "parameters": SCHEMA},
        {"name": "weather", "parameters": SCHEMA},
        {"type": "function", "name": "weather", "parameters": SCHEMA, "strict": True},
        {"type": "function", "name": "weather", "parameters": {}},
        {"type": "function", "function": {"name": "weather", "description": "The weather.", "parameters": SCHEMA}},
        SimpleNamespace(name="Ada"),
        tool(name="weather")(lambda: None),
    ],
)
def test_what_only_has_a_name_is_no_call(given: Any) -> None:
    with pytest.raises(TypeError, match="It takes"):
        ToolCall.parse(given)


@pytest.mark.parametrize(
    "given",
    [
        None,
        7,
        "weather",
        [],
        {},
        {"type": "text", "text": "hi"},
        {"type": "tool_use", "id": "c1"},
        {"type": "function", "function": {"arguments": "{}"}},
        {"type": "function_call_output", "call_id": "c1", "output": "x"},
        {"kind": "text", "text": "hi"},
        SimpleNamespace(),
        ToolCall,
    ],
)
def test_anything_else_is_a_type_error_that_says_what_it_got_and_what_it_takes(given: Any) -> None:
    with pytest.raises(TypeError) as caught:
        ToolCall.parse(given)
    assert f"of type {type(given).__name__}" in str(caught.value)
    assert "tool_use" in str(caught.value)
    assert len(str(caught.value)) < 500
