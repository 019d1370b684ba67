"""Responses: what goes out, to OpenAI, xAI and OpenResponses servers."""

from __future__ import annotations

import json
import warnings
from datetime import date
from typing import Any

import pytest

from everturn.errors import InvalidTool
from everturn.models import Model, ModelSettings
from everturn.providers.base import Request, ToolSpec
from everturn.providers.openai_responses import decode, encode
from everturn.records import Document, Image, Message, Opaque, Part, ServerToolUse, Text, Thinking, ToolCall, ToolResult
from everturn.servertools import CodeExecution, ServerTool, UnsupportedParameter, WebSearch, XSearch

WEATHER = ToolSpec("weather", "The weather", {"type": "object", "properties": {"city": {"type": "string"}}})
PARIS = ToolCall(call_id="c1", name="weather", arguments={"city": "Paris"})
ROME = ToolCall(call_id="c2", name="weather", arguments={"city": "Rome"})
PICTURE = Image(data="AAAA", media_type="image/png")

REASONING = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "gAAA=="}
CALL = {
    "id": "fc_1",
    "type": "function_call",
    "status": "completed",
    "call_id": "c1",
    "name": "weather",
    "arguments": '{"city": "Paris"}',
}


def request(*messages: Message, model: str = "openai:gpt-5.5", stream: bool = False, **options: Any) -> Request:
    settings = options.pop("settings", {})
    return Request(
        model=Model(model), messages=messages, settings=ModelSettings(**{"stream": stream, **settings}), **options
    )


def body_of(*messages: Message, **options: Any) -> dict[str, Any]:
    path, body = encode(request(*messages, **options))
    assert path == "/responses"
    assert json.loads(json.dumps(body)) == body
    return body


def sent(*messages: Message, **options: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = body_of(*messages, **options)["input"]
    return found


def assistant(*parts: Part) -> Message:
    return Message(role="assistant", parts=parts)


def result(call_id: str, *content: Text | Image | Document | str, is_error: bool = False) -> Message:
    parts = tuple(Text(text=item) if isinstance(item, str) else item for item in content)
    return Message(role="tool", parts=(ToolResult(call_id=call_id, content=parts, is_error=is_error),))


def made_of(*items: dict[str, Any], model: str = "openai:gpt-5.5", **fields: Any) -> Message:
    """The message that a reply with these items becomes."""
    options = {"raw_tools": fields.pop("raw_tools", ())}
    return decode({"status": "completed", "output": [*items], **fields}, request(model=model, **options)).message


def said(text: str, **fields: Any) -> dict[str, Any]:
    block = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [block], **fields}


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
        ([], True, "Error: "),
        (["Errors are fine"], False, "Errors are fine"),
        ([], False, ""),
        (["a", "b"], False, "ab"),
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
        ({"settings": {"temperature": 0.0}}, {"temperature": 0.0}),
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


def test_what_this_provider_said_goes_back_as_it_came() -> None:
    search = {"id": "ws_1", "type": "web_search_call", "status": "completed", "action": {"type": "search"}}
    unknown = {"id": "x_1", "type": "something_new", "deep": {"er": [1, None]}}
    citation = {"type": "url_citation", "url": "https://x", "start_index": 0, "end_index": 1, "title": "x"}
    block = {"type": "output_text", "text": "Here.", "annotations": [citation]}
    items = [
        REASONING,
        search,
        said("On it.", phase="commentary"),
        unknown,
        REASONING,
        said("", content=[block, block]),
    ]
    assert sent(Message.user("?"), made_of(*items))[1:] == items


def test_a_call_goes_back_in_the_models_own_words_and_is_paired_by_its_call_id_alone() -> None:
    call = CALL | {"namespace": "crm", "caller": {"type": "program", "caller_id": "p1"}}
    messages = sent(Message.user("?"), made_of(REASONING, call), result("c1", "sun"))
    assert messages[1] == REASONING
    assert messages[2] == {name: value for name, value in call.items() if name not in {"id", "status"}}
    assert messages[3] == {
        "type": "function_call_output",
        "call_id": "c1",
        "output": "sun",
        "caller": {"type": "program", "caller_id": "p1"},
    }


def test_a_call_that_was_edited_since_says_what_it_says_now() -> None:
    message = made_of(CALL)
    call = message.tool_calls[0].model_copy(update={"arguments": {"city": "Rome"}})
    assert sent(Message.user("?"), message.model_copy(update={"parts": (call,)}))[1]["arguments"] == '{"city":"Rome"}'


@pytest.mark.parametrize(
    "item",
    [
        {"id": "rs", "type": "reasoning", "summary": [{"type": "summary_text", "text": t} for t in ("a", "b\n\nc")]},
        {"id": "rs", "type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "raw"}]},
        {"id": "rs", "type": "reasoning", "summary": [], "content": []},
        {"id": "rs", "type": "reasoning", "summary": [{"type": "summary_text", "text": "a"}], "content": [{"x": 1}]},
        {"id": "rs", "type": "reasoning", "summary": [{"type": "summary_text", "text": "a", "new": 1}]},
        {"id": "rs", "type": "reasoning", "summary": [{"type": "summary_text", "text": ""}], "status": "completed"},
        {"id": "msg", "type": "message", "role": "assistant", "content": []},
        {"id": "msg", "type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        {"id": "msg", "type": "message", "role": "assistant", "content": [{"type": "output_audio", "data": "AA"}]},
        {
            "id": "msg",
            "type": "message",
            "role": "tool",
            "content": [{"type": "text", "text": "a", "annotations": [1]}],
        },
        {"id": "pr", "type": "program", "fingerprint": "f", "code": "x"},
        {"id": "cmp", "type": "compaction", "encrypted_content": "gAAA"},
        {"id": "ctc", "type": "custom_tool_call", "call_id": "xs_call_1", "name": "x_keyword_search", "input": "{}"},
    ],
)
def test_an_item_of_any_shape_survives(item: dict[str, Any]) -> None:
    item = item if item["type"] != "reasoning" else {**item, "encrypted_content": "gAAA"}
    message = made_of(item, said("Done."))
    assert Message.model_validate_json(message.model_dump_json()) == message
    assert sent(Message.user("?"), message)[1:] == [item, said("Done.")]


def test_another_provider_is_told_the_words_the_calls_and_the_results() -> None:
    search = {"id": "ws_1", "type": "web_search_call", "status": "completed"}
    message = made_of(REASONING, search, said("Looking."), CALL)
    assert message.provider == "openai"
    messages = sent(Message.user("?"), message, result("c1", "sun"), model="xai:grok-4")
    assert messages[1:] == [
        {"role": "assistant", "content": "Looking."},
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city":"Paris"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "sun"},
    ]


def test_what_only_another_provider_may_see_is_left_out() -> None:
    parts: list[Part] = [
        Thinking(text="hm", extra={"signature": "s"}),
        Opaque(data={"type": "reasoning"}),
        ServerToolUse(name="web_search", data={"type": "server_tool_use"}),
        Text(text="Hi.", extra={"citations": []}),
    ]
    message = Message(role="assistant", parts=tuple(parts), provider="anthropic")
    assert sent(Message.user("?"), message)[1:] == [{"role": "assistant", "content": "Hi."}]


def test_a_reasoning_that_nothing_follows_is_not_sent_back() -> None:
    cut = made_of(said("a"), REASONING, status="incomplete", incomplete_details={"reason": "max_output_tokens"})
    assert [item["type"] for item in sent(Message.user("?"), cut)[1:]] == ["message"]


def test_what_followed_a_reasoning_that_nobody_has_is_sent_without_its_ids() -> None:
    stored = {"id": "rs_1", "type": "reasoning", "summary": []}
    message = made_of(stored, said("Looking."), CALL)
    assert [item.get("id") for item in sent(Message.user("?"), message)] == [None] * 4
    kept = sent(Message.user("?"), message, settings={"extra": {"store": True}})
    assert kept[1] == stored


def test_no_two_calls_share_an_id_on_the_wire() -> None:
    first = made_of(CALL | {"call_id": "0"})
    again = decode({"output": [CALL | {"call_id": "0"}]}, request(Message.user("?"), first)).message
    call = again.tool_calls[0]
    assert (call.call_id, call.provider_id) == ("call_1_0", "0")
    messages = sent(Message.user("?"), first, result("0", "sun"), again, result("call_1_0", "rain"))
    assert [item.get("call_id") for item in messages] == [None, "0", "0", "call_1_0", "call_1_0"]


def test_an_id_that_the_provider_would_not_take_is_replaced_for_a_call_and_its_result_alike() -> None:
    long = ToolCall(call_id="toolu_" + "x" * 90, name="weather")
    call, output = sent(Message.user("?"), assistant(long), result(long.call_id, "sun"))[1:]
    assert call["call_id"] == output["call_id"]
    assert len(call["call_id"]) == 24


def test_an_id_that_the_provider_itself_gave_goes_back_however_long() -> None:
    given = "call|" + "x" * 300
    message = made_of(CALL | {"call_id": given})
    assert sent(Message.user("?"), message)[1]["call_id"] == given


def test_a_name_and_arguments_that_a_model_made_up_can_be_read_back() -> None:
    message = made_of(CALL | {"name": "functions.weather now", "arguments": '{"city": '})
    call = sent(Message.user("?"), message)[1]
    assert call["name"] == "functions_weather_now"
    assert json.loads(call["arguments"]) == {"INVALID_JSON": '{"city": '}


def test_a_custom_tools_call_goes_back_as_one_with_its_result() -> None:
    sql = {"type": "custom", "name": "sql"}
    item = {
        "id": "ct_1",
        "type": "custom_tool_call",
        "status": "completed",
        "call_id": "c9",
        "name": "sql",
        "input": "SELECT",
    }
    message = made_of(item, raw_tools=[sql])
    assert message.tool_calls[0].arguments == {"input": "SELECT"}
    assert sent(Message.user("?"), message, result("c9", "7"), raw_tools=[sql])[1:] == [
        {"type": "custom_tool_call", "call_id": "c9", "name": "sql", "input": "SELECT"},
        {"type": "custom_tool_call_output", "call_id": "c9", "output": "7"},
    ]
