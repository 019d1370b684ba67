"""Responses: what comes back, whole or streamed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from everturn.errors import (
    ContextTooLong,
    InvalidReply,
    ProviderError,
    QuotaExhausted,
    RateLimited,
    RequestRefused,
    Unavailable,
)
from everturn.http.sse import Event
from everturn.models import Model, ModelSettings
from everturn.providers import failures
from everturn.providers.base import Delta, Request
from everturn.providers.catalog import resolve_endpoint
from everturn.providers.failures import ErrorInReply
from everturn.providers.openai_responses import Assembler, decode
from everturn.records import Message, Opaque, Reply, ServerToolUse, Text, Thinking, ToolCall, Usage
from tests.providers.drawn import unmarked
from tests.providers.responses import said

USER = Message.user("?")


def asked(*messages: Message, model: str = "openai:gpt-5.5", **options: Any) -> Request:
    return Request(model=Model(model), messages=messages or (USER,), **options)


def call(arguments: Any = "{}", **fields: Any) -> dict[str, Any]:
    call = {"id": "fc_1", "type": "function_call", "status": "completed", "call_id": "c1", "name": "weather"}
    return call | {"arguments": arguments} | fields


def response(*items: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"id": "resp_1", "status": "completed", "error": None, "output": [*items], **fields}


def streamed(*events: dict[str, Any], request: Request | None = None) -> tuple[Reply, list[Delta]]:
    assembler = Assembler(request or asked())
    deltas = [delta for event in events for delta in assembler.feed(Event(json.dumps(event), event["type"]))]
    return assembler.finish(), deltas


def added(index: int, item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def done(index: int, item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def delta(kind: str, text: str, index: int = 0, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}.delta", "output_index": index, "delta": text, "obfuscation": "x", **fields}


def completed(*items: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"type": "response.completed", "response": response(*items, **fields)}


REASONING = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "gAAA"}


def test_a_reply_is_its_items_in_their_order() -> None:
    search = {"id": "ws_1", "type": "web_search_call", "status": "completed"}
    usage = {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 8},
        "output_tokens": 20,
        "output_tokens_details": {"reasoning_tokens": 12},
        "total_tokens": 120,
    }
    reply = decode(response(REASONING, search, said("Sunny.", phase="final_answer"), call(), usage=usage), asked())
    frame = {"id": "msg_1", "status": "completed", "phase": "final_answer"}
    assert reply.message.parts == (
        Thinking(text="", extra={"item": {"id": "rs_1", "encrypted_content": "gAAA"}}),
        ServerToolUse(name="web_search", data=search),
        Text(text="Sunny.", extra={"item": frame}),
        ToolCall(call_id="c1", name="weather", extra={"id": "fc_1", "status": "completed"}),
    )
    assert reply.message.provider == "openai"
    assert reply.usage == Usage(
        input_tokens=100,
        output_tokens=20,
        cached_tokens=64,
        cache_write_tokens=8,
        reasoning_tokens=12,
        web_searches=1,
    )
    assert (reply.stop, reply.model, reply.response_id) == ("tool_calls", "openai:gpt-5.5", "resp_1")


def test_citations_stand_beside_the_text_and_odds_that_nobody_asked_for_do_not() -> None:
    citation = {"type": "url_citation", "url": "https://x"}
    block = {"type": "output_text", "text": "a", "annotations": [citation], "logprobs": [{"token": "a"}]}
    reply = decode(response(said("", content=[block])), asked())
    assert reply.message.parts[0].extra["annotations"] == [citation]
    assert "logprobs" not in reply.message.parts[0].extra
    reply = decode(response(said("", content=[block])), asked(settings=ModelSettings(extra={"top_logprobs": 1})))
    assert reply.message.parts[0].extra["logprobs"] == [{"token": "a"}]


@pytest.mark.parametrize(
    ("item", "shown"),
    [
        ({"type": "reasoning", "summary": [{"type": "summary_text", "text": t} for t in ("a", "b")]}, ["a", "b"]),
        ({"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "raw"}]}, ["raw"]),
        ({"type": "reasoning", "summary": None}, [""]),
    ],
)
def test_what_the_model_thought_is_shown(item: dict[str, Any], shown: list[str]) -> None:
    assert [part.text for part in decode(response(item), asked()).message.parts] == shown


@pytest.mark.parametrize(
    ("item", "part"),
    [
        ({"type": "x_search_call", "name": "x_semantic_search", "call_id": ""}, "x_semantic_search"),
        ({"type": "custom_tool_call", "name": "x_keyword_search", "call_id": "xs_call_1"}, "x_keyword_search"),
        ({"type": "code_interpreter_call", "id": "ci_1"}, "code_interpreter"),
        ({"type": "mcp_call", "name": "lookup"}, "lookup"),
        ({"type": "mcp_list_tools"}, "mcp_list_tools"),
    ],
)
def test_what_the_server_ran_is_never_ours_to_run(item: dict[str, Any], part: str) -> None:
    for reply in (decode(response(item), asked()), streamed(added(0, item), done(0, item), completed(item))[0]):
        assert reply.message.parts == (ServerToolUse(name=part, data=item),)
        assert (reply.tool_calls, reply.stop) == ((), "end")


def test_an_item_that_we_do_not_know_is_kept() -> None:
    item = {"type": "something_new", "x": [1, {"y": None}]}
    assert decode(response(item), asked()).message.parts == (Opaque(data=item),)


@pytest.mark.parametrize(
    ("arguments", "read"),
    [
        ('{"city": "Paris"}', {"city": "Paris"}),
        ({"city": "Paris"}, {"city": "Paris"}),
        ("", {}),
        (None, {}),
        ('{"city"', '{"city"'),
        ("[1]", "[1]"),
        ("null", {}),
        ("[" * 5000, "[" * 5000),
    ],
)
def test_arguments_are_an_object_or_kept_as_they_came(arguments: Any, read: Any) -> None:
    found = decode(response(call(arguments)), asked()).tool_calls[0]
    assert (found.unparsed if found.unparsed is not None else found.arguments) == read


def test_every_call_gets_an_id_of_its_own() -> None:
    earlier = Message(role="assistant", parts=(ToolCall(call_id="c1", name="weather"),))
    reply = decode(response(call(), call(call_id=""), call(call_id="new")), asked(USER, earlier))
    assert [(unmarked(found.call_id), found.provider_id) for found in reply.tool_calls] == [
        ("call_1_0", "c1"),
        ("call_1_1", None),
        ("new", None),
    ]


CUT = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}


@pytest.mark.parametrize(
    ("items", "fields", "stop"),
    [
        ([said("a")], {}, "end"),
        ([said("a")], {"status": None}, "end"),
        ([said("a"), call()], {}, "tool_calls"),
        ([said("", content=[{"type": "refusal", "refusal": "No."}])], {}, "refused"),
        ([said("a")], CUT, "length"),
        ([call()], CUT, "length"),
        ([], CUT, "length"),
        ([said("a")], CUT | {"incomplete_details": {"reason": "content_filter"}}, "filtered"),
        ([said("a")], CUT | {"incomplete_details": None}, "length"),
    ],
)
def test_why_it_stopped(items: list[dict[str, Any]], fields: dict[str, Any], stop: str) -> None:
    assert decode(response(*items, **fields), asked()).stop == stop


def test_a_refusal_is_read_like_a_text() -> None:
    assert decode(response(said("", content=[{"type": "refusal", "refusal": "No."}])), asked()).text == "No."


def test_a_call_that_was_cut_off_is_not_taken_for_whole() -> None:
    reply = decode(response(call("{}"), call("{}", status="incomplete", call_id="c2"), **CUT), asked())
    assert [found.unparsed for found in reply.tool_calls] == [None, "{}"]


@pytest.mark.parametrize(
    "body",
    [None, [], "x", {}, {"status": "completed"}, response(status="in_progress"), response(status="queued")],
)
def test_what_is_no_response_is_an_invalid_reply(body: object) -> None:
    with pytest.raises(InvalidReply):
        decode(body, asked())


def test_the_items_last_event_counts_and_not_its_deltas() -> None:
    final = said("Hello there.")
    reply, deltas = streamed(
        added(0, REASONING | {"encrypted_content": "gA"}),
        done(0, REASONING),
        added(1, said("", content=[])),
        delta("output_text", "Hel", 1),
        delta("output_text", "lo", 1),
        done(1, final),
        completed(REASONING, final),
    )
    assert reply == decode(response(REASONING, final), asked())
    assert deltas == [Delta("text", "Hel"), Delta("text", "lo")]


def test_thoughts_are_streamed_apart_from_the_text() -> None:
    part = {"type": "response.reasoning_summary_part.added", "output_index": 0, "summary_index": 1}
    _, deltas = streamed(
        added(0, REASONING),
        delta("reasoning_summary_text", "a"),
        part,
        delta("reasoning_summary_text", "b"),
        delta("reasoning_text", "c"),
        delta("refusal", "No."),
        delta("function_call_arguments", "{"),
        completed(REASONING),
    )
    assert [(piece.kind, piece.text) for piece in deltas] == [
        ("thinking", "a"),
        ("thinking", "\n\n"),
        ("thinking", "b"),
        ("thinking", "c"),
        ("text", "No."),
    ]


def test_items_that_the_last_event_leaves_out_are_there() -> None:
    reply, _ = streamed(added(0, call("")), done(0, call('{"a":1}')), completed())
    assert [found.arguments for found in reply.tool_calls] == [{"a": 1}]


def test_items_that_only_the_last_event_has_are_there() -> None:
    reply, _ = streamed(completed(said("Hi."), call()))
    assert (reply.text, len(reply.tool_calls)) == ("Hi.", 1)


def test_without_their_last_events_items_are_put_together_from_deltas() -> None:
    reply, _ = streamed(
        added(0, said("", content=[])),
        delta("output_text", "Hel", content_index=0),
        delta("output_text", "lo", content_index=0),
        added(1, call("")),
        delta("function_call_arguments", '{"a":', 1),
        delta("function_call_arguments", "1}", 1),
        completed(),
    )
    assert reply.text == "Hello"
    assert [(found.arguments, found.unparsed) for found in reply.tool_calls] == [({"a": 1}, None)]


def test_of_an_incomplete_response_such_a_call_is_not_whole() -> None:
    cut = {"type": "response.incomplete", "response": response(**CUT)}
    reply, _ = streamed(added(0, call("")), delta("function_call_arguments", "{}"), cut)
    assert (reply.stop, reply.tool_calls[0].unparsed) == ("length", "{}")


def test_items_are_told_apart_by_their_index_for_ids_may_change_between_events() -> None:
    reply, _ = streamed(
        added(0, said("", id="a1", content=[])),
        delta("output_text", "Hi", item_id="a2"),
        done(0, said("Hi", id="a3")),
        completed(said("Hi", id="a4")),
    )
    assert [part.extra["item"]["id"] for part in reply.message.parts] == ["a3"]


@pytest.mark.parametrize(
    "data", ["{", "[1]", '"x"', '{"type": "response.completed", "response": {"status": "in_progress"}}']
)
def test_what_is_no_event_is_an_invalid_reply(data: str) -> None:
    with pytest.raises(InvalidReply):
        Assembler(asked()).feed(Event(data))


def test_a_text_whose_item_never_began_and_a_content_that_is_a_text_are_read() -> None:
    pieces = (delta("output_text", "Hel", content_index=0), delta("output_text", "lo", content_index=0))
    assert streamed(*pieces, completed())[0].text == "Hello"
    assert decode(response({"type": "message", "role": "assistant", "content": "Hello"}), asked()).text == "Hello"


def test_items_without_ids_under_one_index_are_told_apart_by_what_they_say() -> None:
    first, second = ({"type": "message", "content": [{"type": "output_text", "text": text}]} for text in ("a", "b"))
    assert streamed(done(0, first), done(0, first), done(0, second), completed())[0].text == "ab"


@pytest.mark.parametrize("nothing", [None, {}, {"id": "x"}, {"id": "x", "type": None, "content": None}])
def test_an_item_that_does_not_say_what_it_is_is_no_part(nothing: Any) -> None:
    """It would go back as an item without a type, which servers refuse from then on."""
    events = [added(0, nothing), done(0, nothing), added(1, said("a")), done(1, said("a"))]
    reply, _ = streamed(*events, completed(said("a")))
    assert [type(part) for part in reply.message.parts] == [Text]
    assert [type(part) for part in decode(response(nothing, said("a")), asked()).message.parts] == [Text]


def test_events_that_we_do_not_know_and_done_marks_are_passed_over() -> None:
    assembler = Assembler(asked())
    for data in ("", "[DONE]", '{"type": "keepalive"}', '{"type": "response.new.delta", "delta": "x"}', "{}"):
        assert assembler.feed(Event(data)) == []
    assert not assembler.complete
    with pytest.raises(InvalidReply):
        assembler.finish()


def error_of(*events: dict[str, Any]) -> ProviderError:
    with pytest.raises(ErrorInReply) as raised:
        streamed(*events)
    endpoint = resolve_endpoint(Model("openai:m"), environ={"OPENAI_API_KEY": "k"})
    return failures.of_response(endpoint, status=200, headers={}, body=raised.value.body)


@pytest.mark.parametrize(
    ("code", "error", "retry"),
    [
        ("server_error", Unavailable, True),
        ("vector_store_timeout", Unavailable, True),
        ("something_new", Unavailable, True),
        ("rate_limit_exceeded", RateLimited, True),
        ("insufficient_quota", QuotaExhausted, False),
        ("context_length_exceeded", ContextTooLong, False),
        ("invalid_prompt", RequestRefused, False),
        ("bio_policy", RequestRefused, False),
        ("image_too_large", RequestRefused, False),
        ("failed_to_download_image", RequestRefused, False),
    ],
)
def test_a_failure_with_status_200_is_typed_by_its_code(code: str, error: type[ProviderError], retry: bool) -> None:
    fault = {"code": code, "message": "Because."}
    for event in (
        {"type": "error", "sequence_number": 2, "param": None, **fault},
        {"type": "error", "error": fault | {"type": code}},
        {"type": "response.failed", "response": response(status="failed", error=fault)},
    ):
        found = error_of(event)
        assert (type(found), found.retry) == (error, retry)
        assert "Because." in found.message
    with pytest.raises(ErrorInReply):
        decode(response(status="failed", error=fault), asked())


def test_a_failure_that_does_not_say_why_is_the_providers() -> None:
    found = error_of({"type": "response.failed", "response": response(status="failed")})
    assert (type(found), found.retry) == (Unavailable, True)


@pytest.mark.parametrize(
    ("status", "message", "error"),
    [
        (400, "Your input exceeds the context window of this model.", ContextTooLong),
        (400, "The input is too long and truncation is set to disabled.", ContextTooLong),
        (
            404,
            "Item with id 'rs_1' not found. Items are not persisted when `store` is set to false.",
            RequestRefused,
        ),
        (400, "Item 'rs_1' of type 'reasoning' was provided without its required following item.", RequestRefused),
        (400, "Encrypted content is not supported with this model.", RequestRefused),
    ],
)
def test_what_the_protocols_errors_mean(status: int, message: str, error: type[ProviderError]) -> None:
    endpoint = resolve_endpoint(Model("openai:m"), environ={"OPENAI_API_KEY": "k"})
    body = {"error": {"message": message, "type": "invalid_request_error", "param": "input", "code": None}}
    assert type(failures.of_response(endpoint, status=status, headers={}, body=json.dumps(body).encode())) is error
