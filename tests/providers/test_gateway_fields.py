"""Chat Completions: what a gateway or a vendor puts into a reply goes back as it came, at every place of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from everturn.http.sse import Event
from everturn.models import Model
from everturn.providers import openai_chat
from everturn.providers.base import Request, ToolSpec
from everturn.records import Message, Reply, Text, ToolResult

USER = Message.user("?")
TOOL = ToolSpec("get_weather")
THOUGHT = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}], "signature": "c2ln", "closed": True}
SIGNED = {"type": "thinking", "thinking": "Let me think.", "signature": "c2ln"}


def asked(model: str, *messages: Message, **options: Any) -> Request:
    return Request(Model(model, base_url="http://gateway/v1"), messages or (USER,), tools=[TOOL], **options)


def whole(message: dict[str, Any], model: str = "openai-chat:m", **options: Any) -> Reply:
    body = {"id": "r", "choices": [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}]}
    return openai_chat.decode(body, asked(model, **options))


def streamed(*deltas: dict[str, Any], model: str = "openai-chat:m") -> Reply:
    assembler = openai_chat.Assembler(asked(model))
    for delta in [*deltas, {}]:
        choice = {"index": 0, "delta": delta, "finish_reason": None if delta else "stop"}
        assembler.feed(Event(json.dumps({"id": "r", "choices": [choice]})))
    return assembler.finish()


def sent_back(reply: Reply, model: str = "openai-chat:m", base_url: str | None = "http://gateway/v1") -> list[Any]:
    results = tuple(ToolResult(call_id=call.call_id, content=(Text(text="21"),)) for call in reply.tool_calls)
    messages = [USER, reply.message, *([Message(role="tool", parts=results)] if results else [])]
    request = Request(Model(model, base_url=base_url), messages, tools=[TOOL])
    return openai_chat.encode(request)[1]["messages"][1:]  # type: ignore[no-any-return]


def call(**more: Any) -> dict[str, Any]:
    return {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": "{}", **more}}


@pytest.mark.parametrize(
    "fields",
    [
        {"thinking_blocks": [SIGNED, {"type": "redacted_thinking", "data": "gAAA"}]},  # LiteLLM
        {"provider_specific_fields": {"thought_signatures": ["c2ln"]}},  # LiteLLM before Gemini
        {"reasoning_opaque": "gAAA", "reasoning_text": "Hm."},  # GitHub Copilot
        {"encrypted_content": "gAAA"},
        {"something_new": {"with": ["all", {"of": "it"}]}},
    ],
)
@pytest.mark.parametrize("said", [{"content": "Hi."}, {"content": None, "tool_calls": [call()]}])
def test_a_message_s_own_fields_go_back(fields: dict[str, Any], said: dict[str, Any]) -> None:
    for reply in (
        whole({**said, **fields}),
        streamed({"content": said["content"]}, {**said, "content": None, **fields}),
    ):
        message = sent_back(reply)[0]
        assert {name: message.get(name) for name in fields} == fields


def test_signed_thoughts_that_came_in_pieces_are_one_block() -> None:
    pieces = [{"type": "thinking", "thinking": "Let me "}, {"type": "thinking", "thinking": "think."}]
    deltas = [{"thinking_blocks": [piece], "reasoning_content": piece["thinking"]} for piece in pieces]
    signature = {"thinking_blocks": [{"type": "thinking", "thinking": "", "signature": "c2ln"}]}
    reply = streamed(*deltas, signature, {"content": "Hi."})
    assert sent_back(reply)[0]["thinking_blocks"] == [SIGNED]
    assert [part.text for part in reply.message.parts if not isinstance(part, Text)] == ["Let me think."]


def test_a_function_s_and_a_call_s_fields_go_back_and_a_result_names_its_tool() -> None:
    entry = call(thought_signature="c2ln") | {"extra_content": {"google": {"thought_signature": "c2ln"}}}
    for reply in (whole({"content": None, "tool_calls": [entry]}), streamed({"tool_calls": [{"index": 0, **entry}]})):
        message, result = sent_back(reply)
        assert message["tool_calls"] == [entry]
        assert result == {"role": "tool", "tool_call_id": "c1", "name": "get_weather", "content": "21"}


@pytest.mark.parametrize("model", ["openai-chat:gpt-6", "groq:m", "deepseek:m", "azure:m"])
def test_a_vendor_s_own_server_is_sent_nothing_that_it_may_not_know(model: str) -> None:
    reply = whole({"content": None, "tool_calls": [call()], "something_new": 1}, model=model)
    message, result = sent_back(reply, model=model, base_url=None)
    assert "something_new" not in message
    assert "name" not in result


def test_another_provider_gets_none_of_it() -> None:
    reply = whole({"content": "Hi.", "thinking_blocks": [SIGNED]}, model="openai-chat:m")
    assert sent_back(reply, model="openrouter:m") == [{"role": "assistant", "content": "Hi."}]


@pytest.mark.parametrize(
    "content",
    [
        [THOUGHT, {"type": "text", "text": "Paris."}],
        [
            {"type": "text", "text": "As of "},
            {"type": "reference", "reference_ids": [1, 2]},
            {"type": "text", "text": "a"},
        ],
        [
            {"type": "thinking", "thinking": [{"type": "reference", "reference_ids": [1]}]},
            {"type": "text", "text": "a"},
        ],
        [SIGNED, {"type": "text", "text": "Hi.", "citations": [{"url": "http://x"}]}],
    ],
)
def test_blocks_that_say_more_than_text_go_back_as_they_came(content: list[dict[str, Any]]) -> None:
    model = "mistral:magistral-medium-latest"
    reply = whole({"content": content}, model=model)
    sent = sent_back(reply, model=model)[0]["content"]
    if any(block["type"] == "reference" for block in content) or "signature" in content[0]:
        assert sent == content
    assert reply.text.startswith(("Paris.", "As of a", "a", "Hi."))


def test_streamed_blocks_are_joined_until_they_are_signed() -> None:
    thoughts = [[{"type": "thinking", "thinking": [{"type": "text", "text": piece}]}] for piece in ("H", "m.")]
    end = [{"type": "thinking", "thinking": [], "signature": "c2ln", "closed": True}]
    reply = streamed(*({"content": content} for content in [*thoughts, end, "Par", "is."]), model="mistral:m")
    assert sent_back(reply, model="mistral:m")[0]["content"] == [THOUGHT, {"type": "text", "text": "Paris."}]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({"degrees": 21}, '{"degrees":21}'),
        ({}, "{}"),
        ([{"degrees": 21}], '[{"degrees":21}]'),
        ({"type": "text", "text": "Hi."}, "Hi."),
        ({"text": "Hi."}, "Hi."),
    ],
)
def test_a_content_that_is_no_text_is_read_as_what_it_can_only_be(content: Any, text: str) -> None:
    assert whole({"content": content}, output_schema={"type": "object"}).text == text


def test_the_form_before_tool_calls_is_read_and_goes_back_in_its_own_words() -> None:
    function = {"name": "get_weather", "arguments": '{"city":"Paris"}'}
    pieces = [{"name": "get_weather", "arguments": ""}, {"arguments": '{"city":'}, {"arguments": '"Paris"}'}]
    for reply in (
        whole({"content": None, "function_call": function}),
        streamed(*({"function_call": piece} for piece in pieces)),
    ):
        assert [found.arguments for found in reply.tool_calls] == [{"city": "Paris"}]
        message, result = sent_back(reply)
        assert message["function_call"] == function
        assert result == {"role": "function", "name": "get_weather", "content": "21"}


def test_a_call_in_both_forms_is_one_call() -> None:
    reply = whole(
        {"content": None, "function_call": {"name": "get_weather", "arguments": "{}"}, "tool_calls": [call()]}
    )
    assert [found.call_id for found in reply.tool_calls] == ["c1"]


def test_an_entry_that_is_no_list_is_one_call() -> None:
    assert len(whole({"content": None, "tool_calls": call()}).tool_calls) == 1
