"""Anthropic Messages: settings and tools in its words, for models of every age."""

from __future__ import annotations

import json
import warnings
from typing import Any

import pytest

from everturn.errors import InvalidTool
from everturn.models import Model, ModelSettings
from everturn.providers.anthropic_messages import encode
from everturn.providers.base import Request, ToolSpec
from everturn.records import Message, Text, Thinking, ToolCall, ToolResult
from everturn.tools.server_tools import CodeExecution, UnsupportedParameter, WebSearch, XSearch

WEATHER = ToolSpec("weather", "The weather", {"type": "object", "properties": {"city": {"type": "string"}}})
CALL = ToolCall(call_id="c1", name="weather")
RESULT = Message(role="tool", parts=(ToolResult(call_id="c1"),))
THOUGHT = Thinking(text="hm", extra={"signature": "s"})


def fields(*messages: Message, model: str = "claude-opus-5", **options: Any) -> dict[str, Any]:
    """What is sent beside the messages."""
    chosen = {"stream": False, "cache": False, **options.pop("settings", {})}
    request = Request(
        model=Model(f"anthropic:{model}"),
        messages=messages or [Message.user("?")],
        settings=ModelSettings(**chosen),
        **options,
    )
    _, body = encode(request)
    return {name: value for name, value in body.items() if name not in {"model", "messages"}}


@pytest.mark.parametrize(
    ("model", "tokens"),
    [
        ("claude-opus-5-5", 32_000),
        ("claude-opus-4-1-20250805", 32_000),
        ("claude-3-7-sonnet-latest", 8192),
        ("claude-3-5-haiku-latest", 8192),
        ("claude-3-haiku-20240307", 4096),
        ("glm-9", 32_000),
    ],
)
def test_the_output_is_always_bounded(model: str, tokens: int) -> None:
    assert fields(model=model) == {"max_tokens": tokens}
    assert fields(model=model, settings={"max_output_tokens": 9}) == {"max_tokens": 9}


ADAPTIVE = {"type": "adaptive"}


@pytest.mark.parametrize(
    ("model", "effort", "thinking", "level"),
    [
        *((model, "high", ADAPTIVE, "high") for model in ("claude-opus-4-6", "claude-sonnet-4-6-20260218")),
        *((f"claude-{name}", "low", ADAPTIVE, "low") for name in ("opus-4-7", "opus-4-10", "haiku-5-5", "fable-5-2")),
        ("other-model", "medium", ADAPTIVE, "medium"),
        ("claude-opus-5", "minimal", ADAPTIVE, "low"),
        ("claude-opus-5", "xhigh", ADAPTIVE, "xhigh"),
        ("claude-opus-4-6", "xhigh", ADAPTIVE, "max"),
        ("claude-opus-5", "max", ADAPTIVE, "max"),
        ("claude-opus-5", "none", {"type": "disabled"}, None),
        ("claude-haiku-5-5", "none", {"type": "disabled"}, None),
        ("claude-sonnet-5", "none", {"type": "disabled"}, None),
        ("claude-sonnet-5-5", "none", {"type": "between_tools"}, None),
        ("us.anthropic.claude-sonnet-5-5-v1:0", "none", {"type": "between_tools"}, None),
        ("claude-haiku-4-5", "none", None, None),
        ("claude-haiku-4-5", "minimal", {"type": "enabled", "budget_tokens": 1024}, None),
        ("claude-sonnet-4-5-20250929", "medium", {"type": "enabled", "budget_tokens": 8192}, None),
        ("claude-sonnet-4-20250514", "max", {"type": "enabled", "budget_tokens": 16_000}, None),
        ("claude-opus-4-0", "low", {"type": "enabled", "budget_tokens": 2048}, None),
        ("claude-3-7-sonnet-20250219", "high", {"type": "enabled", "budget_tokens": 4096}, None),
    ],
)
def test_an_effort_is_what_each_model_understands(model: str, effort: str, thinking: Any, level: str | None) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = fields(model=model, settings={"reasoning_effort": effort})
    assert found.get("thinking") == thinking
    assert found.get("output_config") == ({"effort": level} if level else None)


@pytest.mark.parametrize(
    ("model", "options", "messages", "gone", "kept"),
    [
        ("claude-haiku-4-5", {"tool_choice": "weather"}, (), "thinking", "tool_choice"),
        ("claude-haiku-4-5", {"tool_choice": "required"}, (), "thinking", "tool_choice"),
        ("claude-haiku-4-5", {"max_output_tokens": 2047}, (), "thinking", "max_tokens"),
        ("claude-haiku-4-5", {"temperature": 0.5}, (), "temperature", "thinking"),
        ("claude-opus-4-6", {"temperature": 0.5}, (), "temperature", "thinking"),
        ("claude-opus-5", {"temperature": 0.5}, (), "temperature", "thinking"),
        ("claude-3-5-sonnet-latest", {}, (), "thinking", "max_tokens"),
        ("claude-haiku-4-5", {}, (Message(role="assistant", parts=(CALL,)), RESULT), "thinking", "max_tokens"),
    ],
)
def test_what_does_not_go_with_thinking_is_warned_about(
    model: str, options: dict[str, Any], messages: tuple[Message, ...], gone: str, kept: str
) -> None:
    with pytest.warns(UnsupportedParameter, match=r"reasoning_effort|temperature"):
        found = fields(
            *[Message.user("?"), *messages],
            model=model,
            tools=[WEATHER],
            settings={"reasoning_effort": "high", **options},
        )
    assert gone not in found
    assert kept in found


@pytest.mark.parametrize(
    "messages",
    [
        (Message(role="assistant", parts=(THOUGHT, CALL), provider="anthropic"), RESULT),
        (
            Message(role="assistant", parts=(THOUGHT, CALL), provider="anthropic"),
            RESULT,
            Message(role="assistant", parts=(CALL.model_copy(update={"call_id": "c2"}),)),
        ),
        (
            Message(role="assistant", parts=(CALL,)),
            RESULT,
            Message(role="assistant", parts=(Text(text="x"),)),
            Message.user("?"),
        ),
    ],
)
def test_an_old_model_goes_on_thinking_where_it_began_to(messages: tuple[Message, ...]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = fields(Message.user("?"), *messages, model="claude-haiku-4-5", settings={"reasoning_effort": "low"})
    assert found["thinking"]["type"] == "enabled"


@pytest.mark.parametrize(
    ("model", "options", "what"),
    [
        ("claude-opus-4-7", {"temperature": 0.0}, "temperature"),
        ("claude-fable-5", {"reasoning_effort": "none"}, "reasoning_effort"),
        ("claude-opus-5-5", {"reasoning_effort": "none"}, "reasoning_effort"),
        ("claude-mythos-preview", {"reasoning_effort": "none"}, "reasoning_effort"),
        *(
            (f"claude-{name}", {"tool_choice": "required"}, "tool_choice")
            for name in ("mythos-5-1", "fable-5-1", "fable-5-2", "opus-5-5", "sonnet-5-5", "opus-6")
        ),
        ("claude-opus-5-5", {"tool_choice": "weather"}, "tool_choice"),
    ],
)
def test_what_a_model_refuses_is_left_out_with_a_warning(model: str, options: dict[str, Any], what: str) -> None:
    with pytest.warns(UnsupportedParameter, match=f"{model}.*{what}"):
        found = fields(model=model, settings=options, tools=[WEATHER])
    del found["tools"]
    assert found in ({"max_tokens": 32_000}, {"max_tokens": 32_000, "tool_choice": {"type": "auto"}})


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"stop": ("a", "b")}, {"stop_sequences": ["a", "b"]}),
        ({"stream": True}, {"stream": True}),
        ({"temperature": 0.0}, {"temperature": 0.0}),
        ({"tool_choice": "required", "parallel_calls": False}, {}),
        ({"extra": {"max_tokens": 7, "top_k": 3}}, {"max_tokens": 7, "top_k": 3}),
        (
            {"reasoning_effort": "low", "extra": {"output_config": {"x": 1}, "thinking": ADAPTIVE}},
            {"output_config": {"effort": "low", "x": 1}, "thinking": ADAPTIVE},
        ),
    ],
)
def test_only_what_is_set_is_sent(options: dict[str, Any], expected: dict[str, Any]) -> None:
    assert fields(model="other", settings=options) == {"max_tokens": 32_000} | expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, None),
        ({"settings": {"tool_choice": "auto"}}, {"type": "auto"}),
        ({"settings": {"tool_choice": "none"}}, {"type": "none"}),
        ({"settings": {"tool_choice": "required"}}, {"type": "any"}),
        ({"settings": {"tool_choice": "weather"}}, {"type": "tool", "name": "weather"}),
        ({"settings": {"parallel_calls": False}}, {"type": "auto", "disable_parallel_tool_use": True}),
        ({"settings": {"parallel_calls": True}}, None),
        (
            {"settings": {"parallel_calls": False, "tool_choice": "required"}},
            {"type": "any", "disable_parallel_tool_use": True},
        ),
        ({"settings": {"tool_choice": "required", "parallel_calls": False}, "conclude": True}, {"type": "none"}),
    ],
)
def test_how_tools_may_be_called(options: dict[str, Any], expected: dict[str, Any] | None) -> None:
    assert fields(tools=[WEATHER], **options).get("tool_choice") == expected


@pytest.mark.parametrize("model", ["claude-fable-5", "claude-mythos-5", "claude-haiku-5-5", "claude-sonnet-5", "other"])
def test_a_model_that_always_thinks_may_still_be_made_to_call_a_tool(model: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = fields(tools=[WEATHER], model=model, settings={"tool_choice": "required"})
    assert found["tool_choice"] == {"type": "any"}


def test_an_output_schema_is_closed_and_what_it_does_not_know_is_told_in_words() -> None:
    item = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1, "description": "How many."}}}
    schema = {
        "type": "object",
        "title": "Order",
        "properties": {
            "items": {"type": "array", "items": {"$ref": "#/$defs/Item"}, "minItems": 1, "maxItems": 9},
            "when": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}], "default": None},
            "state": {"enum": ["a", "b"], "type": "string"},
            "web": {"type": "string", "format": "uri-template"},
        },
        "required": ["items"],
        "$defs": {"Item": item},
    }
    found = fields(output_schema=schema)["output_config"]["format"]
    assert found == {
        "type": "json_schema",
        "schema": {
            "$defs": {
                "Item": {
                    "type": "object",
                    "properties": {"n": {"type": "integer", "description": 'How many. Must fit {"minimum":1}'}},
                    "additionalProperties": False,
                }
            },
            "type": "object",
            "title": "Order",
            "properties": {
                "items": {
                    "type": "array",
                    "items": {"$ref": "#/$defs/Item"},
                    "minItems": 1,
                    "description": 'Must fit {"maxItems":9}',
                },
                "when": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]},
                "state": {"enum": ["a", "b"], "type": "string"},
                "web": {"type": "string", "description": 'Must fit {"format":"uri-template"}'},
            },
            "required": ["items"],
            "additionalProperties": False,
        },
    }


@pytest.mark.parametrize(
    ("schema", "model", "why"),
    [
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "claude-opus-5", "keys are not listed"),
        ({"type": "object"}, "claude-opus-5", "keys are not listed"),
        ({"type": "object", "properties": {}, "additionalProperties": {}}, "claude-opus-5", "keys are not listed"),
        ({"type": "object", "properties": {"x": {}}}, "claude-opus-5", "without a type"),
        ({"type": "array", "items": True}, "claude-opus-5", "in the place of a schema"),
        ({"$ref": "#/$defs/A", "$defs": {"A": {"anyOf": [{"$ref": "#/$defs/A"}]}}}, "claude-opus-5", "recursive"),
        ({"type": "object", "properties": {}}, "claude-sonnet-4-0", "has no output schemas"),
        ({"type": "object", "properties": {"a": {"$ref": "#"}}}, "claude-opus-5", "refers to more than its .defs"),
        ({"type": ["object", "null"], "additionalProperties": True}, "claude-opus-5", "keys are not listed"),
    ],
)
def test_a_schema_that_it_can_not_hold_a_model_to_is_left_out(schema: dict[str, Any], model: str, why: str) -> None:
    with pytest.warns(UnsupportedParameter, match=why):
        body = fields(model=model, output_schema=schema)
    assert "output_config" not in body
    assert json.dumps(schema, separators=(",", ":")) in body["system"]


def test_server_tools_in_its_words() -> None:
    search = WebSearch(allowed_domains=("a.org",), max_uses=3, user_location={"city": "Bonn"})
    assert fields(server_tools=[search, CodeExecution()], tools=[WEATHER])["tools"] == [
        {"name": "weather", "description": "The weather", "input_schema": WEATHER.parameters},
        {
            "type": "web_search_20250305",
            "name": "web_search",
            "allowed_domains": ["a.org"],
            "max_uses": 3,
            "user_location": {"type": "approximate", "city": "Bonn"},
        },
        {"type": "code_execution_20250825", "name": "code_execution"},
    ]
    blocked = fields(server_tools=[WebSearch(blocked_domains=("b.org",))])["tools"]
    assert blocked == [{"type": "web_search_20250305", "name": "web_search", "blocked_domains": ["b.org"]}]


@pytest.mark.parametrize("field", [{"context_size": "low"}, {"allowed_domains": ("a",), "blocked_domains": ("b",)}])
def test_what_a_search_can_not_do_is_warned_about(field: dict[str, Any]) -> None:
    with pytest.warns(UnsupportedParameter, match="WebSearch"):
        tools = fields(server_tools=[WebSearch(**field)])["tools"]
    assert not tools[0].keys() & {"blocked_domains", "context_size", "search_context_size"}


def test_a_tool_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(InvalidTool, match=r"XSearch.*CodeExecution, WebSearch"):
        fields(server_tools=[XSearch()])
    with pytest.raises(InvalidTool, match="two tools named 'web_search'"):
        fields(server_tools=[WebSearch()], tools=[ToolSpec("web_search")])


def test_schemas_are_of_objects() -> None:
    tools = fields(tools=[ToolSpec("f", parameters={"properties": {}})])["tools"]
    assert tools == [{"name": "f", "input_schema": {"type": "object", "properties": {}}}]
