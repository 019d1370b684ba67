"""Anthropic Messages: what goes out."""

from __future__ import annotations

import json
import warnings
from datetime import UTC, datetime
from typing import Any

import pytest

from everturn.models import Model, ModelSettings
from everturn.providers.anthropic_messages import encode
from everturn.providers.base import Request, ToolSpec
from everturn.records import (
    Document,
    Image,
    Message,
    Opaque,
    Part,
    ServerToolUse,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from tests.providers.messages import result, results

WEATHER = ToolSpec("weather", "The weather", {"type": "object", "properties": {"city": {"type": "string"}}})
NEW, OLD = "anthropic:claude-opus-5", "anthropic:claude-haiku-4-5"


def body_of(*messages: Message, model: str = NEW, **options: Any) -> dict[str, Any]:
    settings = {"stream": False, "cache": False, **options.pop("settings", {})}
    request = Request(model=Model(model), messages=messages, settings=ModelSettings(**settings), **options)
    path, body = encode(request)
    assert path == "/v1/messages"
    assert json.loads(json.dumps(body)) == body
    return body


def sent(*messages: Message, **options: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = body_of(*messages, **options)["messages"]
    assert [message["role"] for message in found[::2]] == ["user"] * len(found[::2])
    assert [message["role"] for message in found[1::2]] == ["assistant"] * len(found[1::2])
    return found


def assistant(*parts: Part, provider: str = "anthropic") -> Message:
    return Message(role="assistant", parts=parts, provider=provider)


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


PARIS = ToolCall(call_id="c1", name="weather", arguments={"city": "Paris"})
ROME = ToolCall(call_id="c2", name="weather", arguments={"city": "Rome"})
PICTURE = Image(data="AAAA", media_type="image/png")
SHOWN = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
THOUGHT = Thinking(text="hm", extra={"signature": "s1"})


def test_a_plain_question_is_a_plain_body() -> None:
    assert body_of(Message.user("hi"), instructions="Be brief.") == {
        "model": "claude-opus-5",
        "system": "Be brief.",
        "messages": [{"role": "user", "content": [text("hi")]}],
        "max_tokens": 32_000,
    }


def test_system_messages_go_with_the_instructions() -> None:
    system = Message(role="system", parts=(Text(text="Two."),))
    assert body_of(Message.user("x"), system, instructions="One.")["system"] == "One.\n\nTwo."
    assert "system" not in body_of(Message.user("x"), instructions=" \n")


def test_results_come_together_in_the_calls_order_before_any_text() -> None:
    messages = sent(
        Message.user("?"),
        assistant(Text(text="Looking."), PARIS, ROME),
        results(result("c2", "rain")),
        results(result("c1", "sun")),
        Message.user("and?"),
    )
    assert messages[1:] == [
        {
            "role": "assistant",
            "content": [
                text("Looking."),
                {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Paris"}},
                {"type": "tool_use", "id": "c2", "name": "weather", "input": {"city": "Rome"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "sun"},
                {"type": "tool_result", "tool_use_id": "c2", "content": "rain"},
                text("and?"),
            ],
        },
    ]


def test_every_call_has_a_result_and_no_result_is_without_its_call() -> None:
    messages = sent(Message.user("?"), assistant(PARIS), results(result("gone", "?")))
    assert messages[2]["content"] == [
        {"type": "tool_result", "tool_use_id": "c1", "content": "Error: this call has no result.", "is_error": True}
    ]


@pytest.mark.parametrize(
    ("given", "block"),
    [
        (result("c1"), {"content": ""}),
        (result("c1", " \n"), {"content": ""}),
        (result("c1", "a", "b"), {"content": "a\nb"}),
        (result("c1", "no", is_error=True), {"content": "no", "is_error": True}),
        (result("c1", "", is_error=True), {"content": "Error: no reason given.", "is_error": True}),
        (result("c1", "map:", "", PICTURE), {"content": [text("map:"), SHOWN]}),
        (
            result("c1", Image(url="https://x/y")),
            {"content": [{"type": "image", "source": {"type": "url", "url": "https://x/y"}}]},
        ),
        (
            result("c1", Image(data="AA", media_type="image/svg+xml")),
            {"content": [text("[image: image/svg+xml, which this model can't be shown]")]},
        ),
    ],
)
def test_results_in_the_forms_that_are_taken(given: ToolResult, block: dict[str, Any]) -> None:
    content = sent(Message.user("?"), assistant(PARIS), results(given))[2]["content"]
    assert content == [{"type": "tool_result", "tool_use_id": "c1", **block}]


def test_a_picture_in_an_error_follows_the_results() -> None:
    failed = result("c1", "no", PICTURE, is_error=True)
    content = sent(Message.user("?"), assistant(PARIS, ROME), results(failed, result("c2", "sun")))[2]["content"]
    assert [block["type"] for block in content] == ["tool_result", "tool_result", "text", "image"]
    assert content[2] == text("From the result of weather (c1):")


@pytest.mark.parametrize(
    ("part", "block"),
    [
        (PICTURE, SHOWN),
        (
            Image(data="AAAA", media_type="image/JPG"),
            {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": "AAAA"}},
        ),
        (Image(url="data:image/png;base64,AAAA"), SHOWN),
        (Image(url="https://x/y.png"), {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}}),
        (Document(url="https://x/y.pdf"), {"type": "document", "source": {"type": "url", "url": "https://x/y.pdf"}}),
        (
            Document(data="JVBE", media_type="application/pdf", name="bill"),
            {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBE"},
                "title": "bill",
            },
        ),
        (
            Document(data="aGk=", media_type="text/csv"),
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "hi"}},
        ),
        (Document(data="/w==", media_type="text/csv"), text("[document: text/csv, which this model can't be shown]")),
        (
            Document(data="AA==", media_type="application/zip", name="a.zip"),
            text("[document: a.zip, which this model can't be shown]"),
        ),
    ],
)
def test_pictures_and_documents(part: Part, block: dict[str, Any]) -> None:
    assert sent(Message.user([Text(text="what?"), part]))[0]["content"] == [text("what?"), block]


def test_blank_texts_are_never_sent() -> None:
    messages = sent(
        Message.user(""), assistant(Text(text="\n"), Text(text="a"), Text(text="")), Message.user([Text(text=" ")])
    )
    assert [message["content"][0].get("text") for message in messages] == ["(empty)", "a", "(empty)"]
    assert len(messages[1]["content"]) == 1
    assert sent() == sent(assistant(Text(text="")))[:1] == [{"role": "user", "content": [text("(empty)")]}]


def test_messages_of_one_role_are_one() -> None:
    messages = sent(
        Message.user("a"), assistant(), Message.user("b"), assistant(Text(text="c")), assistant(Text(text="d"))
    )
    assert [[block["text"] for block in message["content"]] for message in messages] == [["a", "b"], ["c", "d"]]


SEARCH = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [{"encrypted_content": "e"}]}
OWN: tuple[Part, ...] = (
    THOUGHT,
    Opaque(data={"type": "redacted_thinking", "data": "d"}),
    ServerToolUse(name="web_search", data=SEARCH),
    ServerToolUse(name="web_search", data=FOUND),
    Text(text="so", extra={"citations": [{"encrypted_index": "i"}]}),
    Opaque(data={"type": "novel", "x": [1]}),
    PARIS.model_copy(update={"extra": {"caller": {"type": "direct"}}}),
)


def test_what_this_provider_made_goes_back_as_it_came_and_in_its_order() -> None:
    call = {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Paris"}, "caller": {"type": "direct"}}
    assert sent(Message.user("?"), assistant(*OWN))[1]["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "s1"},
        {"type": "redacted_thinking", "data": "d"},
        SEARCH,
        FOUND,
        {"type": "text", "text": "so", "citations": [{"encrypted_index": "i"}]},
        {"type": "novel", "x": [1]},
        call,
    ]


def test_what_another_provider_made_is_only_its_words_and_calls() -> None:
    assert sent(Message.user("?"), assistant(*OWN, provider="openai"))[1]["content"] == [
        text("so"),
        {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Paris"}},
    ]


@pytest.mark.parametrize("extra", [{}, {"signature": ""}])
def test_a_thought_without_a_signature_is_not_sent(extra: dict[str, Any]) -> None:
    assert (
        sent(Message.user("?"), assistant(Thinking(text="hm", extra=extra), PARIS))[1]["content"][0]["type"]
        == "tool_use"
    )


def test_a_thought_that_is_not_shown_goes_back_too() -> None:
    hidden = Thinking(text="", extra={"signature": "s"})
    assert sent(Message.user("?"), assistant(hidden, Text(text="a")))[1]["content"][0] == {
        "type": "thinking",
        "thinking": "",
        "signature": "s",
    }


RUNNING = {"type": "server_tool_use", "id": "s2", "name": "code_execution", "input": {}}
CALLED = PARIS.model_copy(update={"extra": {"caller": {"type": "code_execution_20250825", "tool_id": "s2"}}})


@pytest.mark.parametrize(
    ("after", "kept"),
    [
        ((), True),
        ((results(result("c1", "sun")),), True),
        ((results(result("c1", "sun")), Message.user("wait")), False),
        ((results(result("c1", "sun")), assistant(ROME), results(result("c2", "rain"))), True),
    ],
)
def test_a_servers_tool_still_at_work_is_only_sent_while_it_can_go_on(after: tuple[Message, ...], kept: bool) -> None:
    working = assistant(ServerToolUse(name="code_execution", data=RUNNING), CALLED)
    blocks = sent(Message.user("?"), working, *after)[1]["content"]
    assert [block["type"] for block in blocks] == [*["server_tool_use"] * kept, "tool_use"]
    assert ("caller" in blocks[-1]) is kept


def test_a_result_may_be_whatever_the_provider_takes() -> None:
    own = Message(
        role="tool", parts=(ToolResult(call_id="c1", extra={"content": [{"type": "document"}]}),), provider="anthropic"
    )
    assert sent(Message.user("?"), assistant(PARIS), own)[2]["content"][0]["content"] == [{"type": "document"}]


@pytest.mark.parametrize(
    ("call_id", "kept"), [("toolu_1-A", True), ("functions.f:0", False), ("x" * 99, False), ("ü", False)]
)
def test_ids_are_spelt_as_the_provider_takes_them(call_id: str, kept: bool) -> None:
    call = ToolCall(call_id=call_id, name="weather", provider_id="other")
    messages = sent(Message.user("?"), assistant(call), results(result(call_id, "sun")))
    on_the_wire = messages[1]["content"][0]["id"]
    assert messages[2]["content"][0]["tool_use_id"] == on_the_wire
    assert (on_the_wire == call_id) is kept
    assert kept or (on_the_wire.startswith("call_") and len(on_the_wire) == 29)


@pytest.mark.parametrize(("name", "on_the_wire"), [("a b/ü", "a_b__"), ("", "unknown"), ("x" * 129, "x" * 128)])
def test_a_name_that_a_model_made_up_can_be_sent_back(name: str, on_the_wire: str) -> None:
    assert sent(Message.user("?"), assistant(ToolCall(call_id="c1", name=name)))[1]["content"][0]["name"] == on_the_wire


def test_arguments_that_were_no_object_go_back_as_one() -> None:
    call = ToolCall(call_id="c1", name="weather", unparsed='{"city": "Par')
    assert sent(Message.user("?"), assistant(call))[1]["content"][0]["input"] == {"INVALID_JSON": '{"city": "Par'}


@pytest.mark.parametrize(
    ("container", "pending", "expected"),
    [
        ({"id": "k1", "expires_at": "2999-01-01T00:00:00Z"}, False, "k1"),
        ({"id": "k1"}, False, "k1"),
        ({"id": "k1", "expires_at": "2020-01-01T00:00:00.123456Z"}, False, None),
        ({"id": "k1", "expires_at": "2020-01-01T00:00:00"}, True, "k1"),
        ({}, True, None),
    ],
)
def test_a_container_is_asked_for_again_while_it_lives(
    container: dict[str, Any], pending: bool, expected: str | None
) -> None:
    parts: list[Part] = [Opaque(data={"container": container})]
    if pending:
        parts.insert(0, ServerToolUse(name="code_execution", data=RUNNING))
    body = body_of(Message.user("?"), assistant(Text(text="x"), *parts), now=datetime(2026, 1, 1, tzinfo=UTC))
    assert body.get("container") == expected
    assert all("container" not in block for block in body["messages"][1]["content"])
    assert "container" not in body_of(Message.user("?"), assistant(*parts, provider="anthropic-like"))


def marked(body: dict[str, Any]) -> list[str]:
    places = [f"tool {block['name']}" for block in body.get("tools", []) if "cache_control" in block]
    places += ["system"] * (isinstance(body.get("system"), list) and "cache_control" in body["system"][-1])
    for number, message in enumerate(body["messages"]):
        places += [f"{number}.{place}" for place, block in enumerate(message["content"]) if "cache_control" in block]
    return places


TURNS = (
    Message.user("a"),
    assistant(PARIS),
    results(result("c1", "sun")),
    assistant(Text(text="b")),
    Message.user("c"),
)


@pytest.mark.parametrize(
    ("messages", "options", "places"),
    [
        (TURNS[:1], {}, ["0.0"]),
        (TURNS, {"instructions": "Be.", "tools": [WEATHER]}, ["system", "2.0", "4.0"]),
        (TURNS, {"tools": [WEATHER]}, ["tool weather", "2.0", "4.0"]),
        (TURNS, {"raw_tools": [{"name": "x", "type": "y", "defer_loading": True}]}, ["2.0", "4.0"]),
        (TURNS[:4], {}, ["0.0", "2.0"]),
        (TURNS, {"settings": {"cache": False}}, []),
        (TURNS, {"settings": {"cache": True, "extra": {"cache_control": {"type": "ephemeral", "ttl": "1h"}}}}, []),
        (
            TURNS,
            {"instructions": "Be.", "raw_tools": [{"name": n, "type": "y", "cache_control": {}} for n in "xyz"]},
            ["tool x", "tool y", "tool z", "4.0"],
        ),
    ],
)
def test_the_stable_prefix_is_cached(messages: tuple[Message, ...], options: dict[str, Any], places: list[str]) -> None:
    body = body_of(*messages, **{"settings": {"cache": True}, **options})
    assert marked(body) == places
    assert len(places) <= 4


def test_the_prefix_is_the_same_from_turn_to_turn_but_for_its_breakpoints() -> None:
    def bare(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: bare(inner) for name, inner in value.items() if name != "cache_control"}
        return [bare(inner) for inner in value] if isinstance(value, list) else value

    before, after = (bare(body_of(*TURNS[:end], settings={"cache": True})["messages"]) for end in (3, 5))
    assert after[: len(before)] == before


def test_any_encoding_warns_of_nothing_by_itself() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        body_of(*TURNS, tools=[WEATHER], settings={"reasoning_effort": "high", "max_output_tokens": 9000})
