"""Responses: a transcript read from replies goes back as it came, to its provider; and what others are told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from everturn.providers.openai_responses import decode
from everturn.records import Message, Opaque, Part, ServerToolUse, Text, Thinking, ToolCall
from tests.providers.messages import assistant
from tests.providers.responses import request, result, said, sent

REASONING = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "gAAA=="}
CALL = {
    "id": "fc_1",
    "type": "function_call",
    "status": "completed",
    "call_id": "c1",
    "name": "weather",
    "arguments": '{"city": "Paris"}',
}


def made_of(*items: dict[str, Any], model: str = "openai:gpt-5.5", **fields: Any) -> Message:
    """The message that a reply with these items becomes."""
    options = {"raw_tools": fields.pop("raw_tools", ())}
    return decode({"status": "completed", "output": [*items], **fields}, request(model=model, **options)).message


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
