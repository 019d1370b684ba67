"""Responses: what goes out, to OpenAI, xAI and OpenResponses servers."""

from __future__ import annotations

import warnings
from datetime import date
from typing import Any

import pytest

from everturn.errors import InvalidTool
from everturn.providers.base import ToolSpec
from everturn.providers.openai_responses import encode
from everturn.records import Document, Image, Message, Text, ToolCall
from everturn.tools.server_tools import CodeExecution, ServerTool, UnsupportedParameter, WebSearch, XSearch
from tests.providers.messages import assistant
from tests.providers.responses import body_of, request, result, sent

WEATHER = ToolSpec("weather", "The weather", {"type": "object", "properties": {"city": {"type": "string"}}})
PARIS = ToolCall(call_id="c1", name="weather", arguments={"city": "Paris"})
ROME = ToolCall(call_id="c2", name="weather", arguments={"city": "Rome"})
PICTURE = Image(data="AAAA", media_type="image/png")


def test_a_plain_question_is_a_plain_body_that_stores_nothing() -> None:
    assert body_of(Message.user("hi"), instructions="Be brief.") == {
        "model": "gpt-5.5",
        "instructions": "Be brief.",
        "input": [{"role": "user", "content": "hi"}],
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }


@pytest.mark.parametrize(
    "model", ["gpt-4o", "gpt-4.1-mini", "ft:gpt-4o:me::1", "gpt-5-chat-latest", "chatgpt-4o-latest"]
)
def test_a_model_that_does_not_reason_is_not_asked_for_its_reasoning(model: str) -> None:
    assert "include" not in body_of(Message.user("hi"), model=f"openai:{model}")


@pytest.mark.parametrize("model", ["openai:gpt-5.5", "openai:o3", "xai:grok-4", "openresponses:qwen3"])
def test_any_other_model_is(model: str) -> None:
    assert body_of(Message.user("hi"), model=model)["include"] == ["reasoning.encrypted_content"]


def test_xai_gets_its_instructions_as_a_system_message() -> None:
    body = body_of(Message.user("hi"), model="xai:grok-4", instructions="Be brief.")
    assert "instructions" not in body
    assert body["input"][0] == {"role": "system", "content": "Be brief."}


def test_system_messages_stay_where_they_are() -> None:
    system = Message(role="system", parts=(Text(text="Two."),))
    assert sent(Message.user("x"), system)[1] == {"role": "system", "content": "Two."}


def test_what_a_user_shows_is_a_list_of_parts() -> None:
    bill = Document(data="BBBB", media_type="application/pdf", name="bill.pdf")
    message = Message.user([Text(text="what?"), PICTURE, Image(url="https://x/y.png"), bill, Document(url="https://d")])
    assert sent(message)[0]["content"] == [
        {"type": "input_text", "text": "what?"},
        {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "auto"},
        {"type": "input_image", "image_url": "https://x/y.png", "detail": "auto"},
        {"type": "input_file", "filename": "bill.pdf", "file_data": "data:application/pdf;base64,BBBB"},
        {"type": "input_file", "file_url": "https://d"},
    ]


def test_results_follow_their_calls_in_the_order_of_the_calls() -> None:
    messages = sent(
        Message.user("?"), assistant(Text(text="Looking."), PARIS, ROME), result("c2", "rain"), result("c1", "sun")
    )
    assert messages[1:] == [
        {"role": "assistant", "content": "Looking."},
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city":"Paris"}'},
        {"type": "function_call", "call_id": "c2", "name": "weather", "arguments": '{"city":"Rome"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "sun"},
        {"type": "function_call_output", "call_id": "c2", "output": "rain"},
    ]


def test_every_call_has_a_result_and_no_result_is_without_its_call() -> None:
    messages = sent(Message.user("?"), assistant(PARIS), result("gone", "?"), Message.user("and?"))
    assert [item.get("type") or item["role"] for item in messages] == [
        "user",
        "function_call",
        "function_call_output",
        "user",
    ]
    assert messages[2]["output"] == "Error: this call has no result."


@pytest.mark.parametrize(
    ("content", "is_error", "output"),
    [
        (["no such city"], True, "Error: no such city"),
        (["Error: no"], True, "Error: no"),
        (["Errorless lines: none"], True, "Error: Errorless lines: none"),
        ([], True, "Error: "),
        (["Errors are fine"], False, "Errors are fine"),
        ([], False, ""),
        (["a", "b"], False, "a\nb"),
        (
            ["map:", PICTURE],
            False,
            [
                {"type": "input_text", "text": "map:"},
                {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "auto"},
            ],
        ),
        (
            [PICTURE],
            True,
            [
                {"type": "input_text", "text": "Error:"},
                {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "auto"},
            ],
        ),
    ],
)
def test_a_result_is_text_or_a_list_and_an_error_is_put_into_words(content: Any, is_error: bool, output: Any) -> None:
    assert sent(Message.user("?"), assistant(PARIS), result("c1", *content, is_error=is_error))[-1]["output"] == output


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"settings": {"max_output_tokens": 64}}, {"max_output_tokens": 64}),
        (
            {"settings": {"temperature": 0.0, "reasoning_effort": "none"}},
            {"temperature": 0.0, "reasoning": {"effort": "none"}},
        ),
        ({"settings": {"reasoning_effort": "low"}}, {"reasoning": {"effort": "low"}}),
        ({"stream": True}, {"stream": True}),
        ({"conversation_id": "order-81"}, {"prompt_cache_key": "order-81"}),
        ({"settings": {"tool_choice": "required"}, "tools": [WEATHER]}, {"tool_choice": "required"}),
        (
            {"settings": {"tool_choice": "weather"}, "tools": [WEATHER]},
            {"tool_choice": {"type": "function", "name": "weather"}},
        ),
        ({"settings": {"tool_choice": "required"}, "tools": [WEATHER], "conclude": True}, {"tool_choice": "none"}),
        ({"settings": {"parallel_calls": False}, "tools": [WEATHER]}, {"parallel_tool_calls": False}),
        ({"settings": {"extra": {"service_tier": "flex", "store": True}}}, {"service_tier": "flex", "store": True}),
        (
            {"settings": {"reasoning_effort": "low", "extra": {"reasoning": {"summary": "auto"}}}},
            {"reasoning": {"effort": "low", "summary": "auto"}},
        ),
        (
            {"settings": {"extra": {"include": ["message.output_text.logprobs"]}}},
            {"include": ["reasoning.encrypted_content", "message.output_text.logprobs"]},
        ),
    ],
)
def test_settings_have_their_fields(options: dict[str, Any], expected: dict[str, Any]) -> None:
    body = body_of(Message.user("x"), **options)
    assert {name: body.get(name) for name in expected} == expected


@pytest.mark.parametrize("name", ["temperature", "max_output_tokens", "reasoning", "tools", "tool_choice", "text"])
def test_what_nobody_asked_for_is_not_sent(name: str) -> None:
    assert name not in body_of(Message.user("x"))


def test_a_cache_key_is_never_longer_than_the_provider_takes() -> None:
    assert "prompt_cache_key" not in body_of(Message.user("x"), conversation_id="a", settings={"cache": False})
    assert len(body_of(Message.user("x"), conversation_id="x" * 100)["prompt_cache_key"]) == 64


def test_stop_is_warned_about() -> None:
    with pytest.warns(UnsupportedParameter, match="stop"):
        assert "stop" not in body_of(Message.user("x"), settings={"stop": ("END",)})


@pytest.mark.parametrize(("required", "strict"), [(["a"], True), ([], False)])
def test_a_schema_for_the_output_is_strict_only_where_it_fits(required: list[str], strict: bool) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "required": required,
        "additionalProperties": False,
    }
    sent_format = body_of(Message.user("x"), output_schema=schema)["text"]["format"]
    assert sent_format == {"type": "json_schema", "name": "output", "schema": schema, "strict": strict}


def test_tools_are_flat_and_never_strict_by_omission() -> None:
    tools = body_of(Message.user("x"), tools=[WEATHER], raw_tools=[{"type": "file_search", "vector_store_ids": []}])[
        "tools"
    ]
    assert tools == [
        {
            "type": "function",
            "name": "weather",
            "description": "The weather",
            "parameters": WEATHER.parameters,
            "strict": False,
        },
        {"type": "file_search", "vector_store_ids": []},
    ]


@pytest.mark.parametrize(
    ("provider", "tool", "made"),
    [
        ("openai", WebSearch(), {"type": "web_search"}),
        (
            "openai",
            WebSearch(allowed_domains=("a.org",), user_location={"country": "DE"}, context_size="low"),
            {
                "type": "web_search",
                "filters": {"allowed_domains": ["a.org"]},
                "user_location": {"type": "approximate", "country": "DE"},
                "search_context_size": "low",
            },
        ),
        ("openai", CodeExecution(), {"type": "code_interpreter", "container": {"type": "auto"}}),
        ("xai", WebSearch(allowed_domains=("a.org",)), {"type": "web_search", "allowed_domains": ["a.org"]}),
        ("xai", WebSearch(blocked_domains=("a.org",)), {"type": "web_search", "excluded_domains": ["a.org"]}),
        ("xai", CodeExecution(), {"type": "code_interpreter"}),
        (
            "xai",
            XSearch(allowed_x_handles=("xai",), from_date=date(2026, 1, 2), enable_image_understanding=False),
            {
                "type": "x_search",
                "allowed_x_handles": ["xai"],
                "from_date": "2026-01-02",
                "enable_image_understanding": False,
            },
        ),
    ],
)
def test_the_providers_own_tools_in_its_own_words(provider: str, tool: ServerTool, made: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert body_of(Message.user("x"), model=f"{provider}:m", server_tools=[tool])["tools"] == [made]


def test_what_servers_leave_out_of_their_tools_items_is_asked_for() -> None:
    include = body_of(Message.user("x"), server_tools=[WebSearch(), CodeExecution()])["include"]
    assert include[1:] == ["web_search_call.action.sources", "code_interpreter_call.outputs"]


@pytest.mark.parametrize(
    ("provider", "tool", "field"),
    [
        ("openai", WebSearch(blocked_domains=("a.org",)), "blocked_domains"),
        ("openai", WebSearch(max_uses=3), "max_uses"),
        ("xai", WebSearch(max_uses=3), "max_uses"),
        ("xai", WebSearch(user_location={"country": "DE"}), "user_location"),
        ("xai", WebSearch(context_size="low"), "context_size"),
    ],
)
def test_a_field_that_the_provider_does_not_have_is_warned_about(provider: str, tool: ServerTool, field: str) -> None:
    with pytest.warns(UnsupportedParameter, match=field):
        made = body_of(Message.user("x"), model=f"{provider}:m", server_tools=[tool])["tools"]
    assert made == [{"type": "web_search"}]


@pytest.mark.parametrize(
    ("provider", "tool", "words"),
    [
        ("openai", XSearch(), ["XSearch", "CodeExecution, WebSearch"]),
        ("openresponses", WebSearch(), ["WebSearch", "no tools of its own"]),
    ],
)
def test_a_tool_that_the_provider_does_not_have_is_refused(provider: str, tool: ServerTool, words: list[str]) -> None:
    with pytest.raises(InvalidTool) as raised:
        encode(request(Message.user("x"), model=f"{provider}:m", server_tools=[tool]))
    assert all(word in str(raised.value) for word in words)
