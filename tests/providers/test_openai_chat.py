"""Chat Completions: what goes out, in every provider's dialect."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

from everturn.providers.base import ToolSpec
from everturn.providers.openai_chat import encode
from everturn.records import Image, Message, Opaque, Text, Thinking, ToolCall
from tests.providers import messages
from tests.providers.messages import assistant, result, results

WEATHER = ToolSpec("weather", "The weather", {"type": "object", "properties": {"city": {"type": "string"}}})


request = partial(messages.request, model="openai-chat:m")


def body_of(*messages: Message, **options: Any) -> dict[str, Any]:
    path, body = encode(request(*messages, **options))
    assert path == "/chat/completions"
    assert json.loads(json.dumps(body)) == body
    return body


def sent(*messages: Message, **options: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = body_of(*messages, **options)["messages"]
    return found


PARIS = ToolCall(call_id="c1", name="weather", arguments={"city": "Paris"})
ROME = ToolCall(call_id="c2", name="weather", arguments={"city": "Rome"})
PICTURE = Image(data="AAAA", media_type="image/png")


def test_a_plain_question_is_a_plain_body() -> None:
    assert body_of(Message.user("hi"), instructions="Be brief.") == {
        "model": "m",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}],
    }


def test_leading_system_messages_are_one_with_the_instructions() -> None:
    system = Message(role="system", parts=(Text(text="Two."),))
    assert sent(system, Message.user("x"), instructions="One.")[0] == {"role": "system", "content": "One.\n\nTwo."}
    assert sent(Message.user("x"), system)[1] == {"role": "system", "content": "Two."}


def test_results_follow_their_calls_in_the_order_of_the_calls_whatever_order_they_came_in() -> None:
    messages = sent(
        Message.user("?"),
        assistant(Text(text="Looking."), PARIS, ROME),
        results(result("c2", "rain")),
        results(result("c1", "sun")),
    )
    assert messages[1:] == [
        {
            "role": "assistant",
            "content": "Looking.",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Paris"}'}},
                {"id": "c2", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Rome"}'}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "sun"},
        {"role": "tool", "tool_call_id": "c2", "content": "rain"},
    ]


def test_every_call_has_a_result_and_no_result_is_without_its_call() -> None:
    messages = sent(Message.user("?"), assistant(PARIS), results(result("gone", "?")), Message.user("and?"))
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "user"]
    assert messages[1]["content"] is None
    assert messages[2]["content"] == "Error: this call has no result."


@pytest.mark.parametrize(
    ("text", "is_error", "content"),
    [
        ("no such city", True, "Error: no such city"),
        ("Error: no such city", True, "Error: no such city"),
        ("error 7", True, "error 7"),
        ("Errorless lines: none", True, "Error: Errorless lines: none"),
        ("", True, "Error: "),
        ("Errors are fine", False, "Errors are fine"),
        ("", False, ""),
    ],
)
def test_an_error_is_put_into_words(text: str, is_error: bool, content: str) -> None:
    messages = sent(Message.user("?"), assistant(PARIS), results(result("c1", text, is_error=is_error)))
    assert messages[-1]["content"] == content


def test_pictures_in_results_follow_in_a_users_message_after_all_results() -> None:
    messages = sent(
        Message.user("?"), assistant(PARIS, ROME), results(result("c1", "map:", PICTURE), result("c2", "no map"))
    )
    assert messages[2:] == [
        {"role": "tool", "tool_call_id": "c1", "content": "map:\n[image: in the next message]"},
        {"role": "tool", "tool_call_id": "c2", "content": "no map"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "From the result of weather (c1):"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
            ],
        },
    ]


def test_a_users_pictures_are_parts() -> None:
    content = sent(Message.user([Text(text="what?"), Image(url="https://x/y.png"), PICTURE]))[0]["content"]
    assert content == [
        {"type": "text", "text": "what?"},
        {"type": "image_url", "image_url": {"url": "https://x/y.png"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
    ]


def test_what_another_provider_thought_or_signed_stays_with_it() -> None:
    foreign = (Thinking(text="hm"), Opaque(data={"x": 1}))
    assert sent(Message.user("?"), assistant(*foreign, Text(text="so")))[1] == {"role": "assistant", "content": "so"}


@pytest.mark.parametrize("provider", ["deepseek", "moonshot"])
@pytest.mark.parametrize(("thinker", "text"), [("same", "hm"), ("openai", "")])
def test_reasoning_goes_back_with_tool_calls_where_the_provider_wants_it(
    provider: str, thinker: str, text: str
) -> None:
    thought, by = Thinking(text="hm"), provider if thinker == "same" else thinker
    called, done = (assistant(thought, part).model_copy(update={"provider": by}) for part in (PARIS, Text(text="done")))
    messages = sent(Message.user("?"), called, done, model=f"{provider}:m")
    assert messages[1]["reasoning_content"] == text
    assert "reasoning_content" not in messages[3]


def test_a_call_goes_by_its_providers_id_on_both_sides() -> None:
    call = ToolCall(call_id="call_3_0", provider_id="0", name="weather")
    messages = sent(Message.user("?"), assistant(call), results(result("call_3_0", "sun")))
    assert messages[1]["tool_calls"][0]["id"] == messages[2]["tool_call_id"] == "0"


@pytest.mark.parametrize(
    ("model", "given_id", "kept"),
    [
        ("mistral:m", "KikbB849t", True),
        ("mistral:m", "call_1_0", False),
        ("openai-chat:m", "call_1_0", True),
        ("openai-chat:m", "x" * 41, False),
        ("openrouter:m", "x" * 4000, True),
    ],
)
def test_ids_are_spelt_as_the_provider_takes_them(model: str, given_id: str, kept: bool) -> None:
    call = ToolCall(call_id=given_id, name="weather")
    messages = sent(Message.user("?"), assistant(call), results(result(given_id, "sun")), model=model)
    on_the_wire = messages[1]["tool_calls"][0]["id"]
    assert messages[2]["tool_call_id"] == on_the_wire
    assert (on_the_wire == given_id) is kept
    assert kept or (len(on_the_wire) == 9 and on_the_wire.isalnum())


def test_mistral_hears_no_user_right_after_a_tool() -> None:
    transcript = (Message.user("?"), assistant(PARIS), results(result("c1", PICTURE)), Message.user("and?"))
    roles = [message["role"] for message in sent(*transcript, model="mistral:m")]
    assert roles == ["user", "assistant", "tool", "assistant", "user", "user"]


@pytest.mark.parametrize("unparsed", ['{"city": "Par', "[1]", ""])
def test_arguments_that_were_no_object_go_back_as_one(unparsed: str) -> None:
    call = ToolCall(call_id="c1", name="weather", unparsed=unparsed)
    arguments = sent(Message.user("?"), assistant(call))[1]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(arguments) == {"INVALID_JSON": unparsed}


@pytest.mark.parametrize(("name", "on_the_wire"), [("a b/ü", "a_b__"), ("", "unknown"), ("x" * 99, "x" * 64)])
def test_a_name_that_a_model_made_up_can_be_sent_back(name: str, on_the_wire: str) -> None:
    call = ToolCall(call_id="c1", name=name)
    assert sent(Message.user("?"), assistant(call))[1]["tool_calls"][0]["function"]["name"] == on_the_wire


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"settings": {"max_output_tokens": 9}}, {"max_completion_tokens": 9}),
        ({"settings": {"max_output_tokens": 9}, "model": "mistral:m"}, {"max_tokens": 9}),
        ({"settings": {"temperature": 0.0}}, {"temperature": 0.0}),
        ({"settings": {"reasoning_effort": "low"}}, {"reasoning_effort": "low"}),
        ({"settings": {"stop": ("a", "b")}}, {"stop": ["a", "b"]}),
        ({"stream": True}, {"stream": True, "stream_options": {"include_usage": True}}),
        ({"stream": True, "model": "mistral:m"}, {"stream": True}),
        ({"settings": {"extra": {"seed": 7, "model": "other"}}}, {"seed": 7, "model": "other"}),
        ({"settings": {"tool_choice": "required", "parallel_calls": True}}, {}),
    ],
)
def test_only_what_is_set_is_sent(options: dict[str, Any], expected: dict[str, Any]) -> None:
    body = body_of(Message.user("x"), **options)
    messages = {"messages": [{"role": "user", "content": "x"}]}
    assert body == {"model": "m"} | messages | expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {}),
        ({"settings": {"tool_choice": "auto"}}, {"tool_choice": "auto"}),
        ({"settings": {"tool_choice": "required"}}, {"tool_choice": "required"}),
        ({"settings": {"tool_choice": "required"}, "model": "mistral:m"}, {"tool_choice": "any"}),
        (
            {"settings": {"tool_choice": "weather"}},
            {"tool_choice": {"type": "function", "function": {"name": "weather"}}},
        ),
        ({"settings": {"tool_choice": "required"}, "conclude": True}, {"tool_choice": "none"}),
        ({"settings": {"parallel_calls": False}}, {"parallel_tool_calls": False}),
    ],
)
def test_how_tools_may_be_called(options: dict[str, Any], expected: dict[str, Any]) -> None:
    body = body_of(Message.user("x"), tools=[WEATHER], raw_tools=[{"type": "browser_search"}], **options)
    function = {"name": "weather", "description": "The weather", "parameters": WEATHER.parameters}
    assert body.pop("tools") == [{"type": "function", "function": function}, {"type": "browser_search"}]
    assert {name: body[name] for name in body.keys() - {"model", "messages"}} == expected
