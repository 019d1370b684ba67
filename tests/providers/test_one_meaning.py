"""What one provider says in a shape of its own means the same as with the others, whole and streamed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from everturn.errors import ConnectionFailed, InvalidReply
from everturn.http.sse import Event
from everturn.models import Model, ModelSettings
from everturn.providers import anthropic_messages, ask, connections, gemini, openai_chat, openai_responses
from everturn.providers.base import Request, ToolSpec
from everturn.providers.catalog import row_of
from everturn.providers.http import protocol_by_name
from everturn.records import Message, Opaque, Reply, ServerToolUse
from everturn.tools.server_tools import CodeExecution
from tests.providers.sockets import sends, server

TOOL = ToolSpec("weather", "", {"type": "object", "properties": {}})
ASK = Message.user("?")
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}


def asking(model: str, *messages: Message, **options: Any) -> Request:
    return Request(model=Model(model), messages=messages or [ASK], **options)


def of_stream(protocol: Any, request: Request, *events: dict[str, Any]) -> Reply:
    assembler = protocol.Assembler(request)
    for event in events:
        assembler.feed(Event(json.dumps(event)))
    if protocol is openai_chat:
        assembler.feed(Event("[DONE]"))
    reply: Reply = assembler.finish()
    return reply


# ---------------------------------------------------------------- no arguments


def chat_call(arguments: str, stream: bool) -> Reply:
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "weather", "arguments": arguments}}
    request = asking("groq:openai/gpt-oss-20b")
    if stream:
        chunk = {"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]}
        return of_stream(openai_chat, request, chunk)
    return openai_chat.decode(
        {"choices": [{"message": {"content": None, "tool_calls": [call]}, "finish_reason": "tool_calls"}]}, request
    )


def responses_call(arguments: str, stream: bool, *, status: str = "completed", **incomplete: Any) -> Reply:
    item = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": arguments, "status": status}
    response = {"id": "r1", "status": "incomplete" if incomplete else "completed", "output": [item], **incomplete}
    request = asking("openai:m")
    if not stream:
        return openai_responses.decode(response, request)
    done = {"type": "response.output_item.done", "output_index": 0, "item": item}
    return of_stream(openai_responses, request, done, {"type": "response.completed", "response": response})


def anthropic_call(arguments: str, stream: bool) -> Reply:
    request, block = asking("anthropic:m"), {"type": "tool_use", "id": "c1", "name": "weather"}
    if not stream:
        body = {"content": [{**block, "input": json.loads(arguments)}], "stop_reason": "tool_use"}
        return anthropic_messages.decode(body, request)
    return of_stream(
        anthropic_messages,
        request,
        {"type": "message_start", "message": {"id": "m1"}},
        {"type": "content_block_start", "index": 0, "content_block": {**block, "input": {}}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": arguments}},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
        {"type": "message_stop"},
    )


def gemini_call(arguments: str, stream: bool) -> Reply:
    part = {"functionCall": {"name": "weather", "args": json.loads(arguments)}}
    body = {"candidates": [{"content": {"parts": [part]}, "finishReason": "STOP"}]}
    request = asking("google:gemini-3-flash")
    return of_stream(gemini, request, body) if stream else gemini.decode(body, request)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("call", [chat_call, responses_call, anthropic_call, gemini_call])
@pytest.mark.parametrize("written", ["null", '""', '"null"', "[]"])
def test_null_for_arguments_is_no_arguments(call: Any, written: str, stream: bool) -> None:
    (found,) = call(written, stream).tool_calls
    assert (found.arguments, found.unparsed) == ({}, None)


def test_they_go_back_as_an_object() -> None:
    """Servers refuse a past call whose arguments are none."""
    reply = responses_call("null", stream=False)
    items = openai_responses.encode(asking("openai:m", ASK, reply.message))[1]["input"]
    assert items[1]["arguments"] == "{}"
    messages = openai_chat.encode(asking("groq:m", ASK, chat_call("null", stream=False).message))[1]["messages"]
    assert messages[1]["tool_calls"][0]["function"]["arguments"] == "{}"


# ---------------------------------------------------------------- replies that stop early


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("reason", ["content_filter", "max_messages", "steered", "something new"])
def test_a_call_that_came_whole_is_taken_whatever_was_left_unsaid_after_it(reason: str, stream: bool) -> None:
    reply = responses_call('{"city":"Rome"}', stream, incomplete_details={"reason": reason})
    assert reply.stop == "tool_calls"
    assert [(call.arguments, call.unparsed) for call in reply.tool_calls] == [({"city": "Rome"}, None)]


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_a_call_that_the_server_calls_incomplete_is_not(stream: bool) -> None:
    reply = responses_call('{"city":', stream, status="incomplete", incomplete_details={"reason": "content_filter"})
    assert (reply.stop, reply.tool_calls[0].unparsed) == ("filtered", '{"city":')


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_a_pause_for_compaction_goes_on_with_what_was_compacted(stream: bool) -> None:
    block = {"type": "compaction", "content": "They met in Rome.", "encrypted_content": "Ep=="}
    message = {"id": "m1", "content": [block], "stop_reason": "compaction"}
    request = asking("anthropic:claude-opus-4-7")
    if stream:
        late = {name: value for name, value in block.items() if name != "type"}
        reply = of_stream(
            anthropic_messages,
            request,
            {"type": "message_start", "message": {"id": "m1", "content": []}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "compaction", "content": None}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "compaction_delta", **late}},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "compaction"}},
            {"type": "message_stop"},
        )
    else:
        reply = anthropic_messages.decode(message, request)
    assert (reply.stop, reply.message.parts) == ("paused", (Opaque(data=block),))
    again = anthropic_messages.encode(asking("anthropic:claude-opus-4-7", ASK, reply.message))[1]
    assert again["messages"][-1] == {"role": "assistant", "content": [block]}


def test_what_a_compaction_took_is_counted_too() -> None:
    """Its tokens are not in the counts of the message (BetaUsage.iterations)."""
    listed = [
        {"type": "compaction", "input_tokens": 1000, "cache_read_input_tokens": 50, "output_tokens": 70},
        {"type": "message", "input_tokens": 200, "output_tokens": 8},
    ]
    usage = {"input_tokens": 200, "output_tokens": 8, "iterations": listed}
    body = {"content": [{"type": "text", "text": "Hi."}], "stop_reason": "end_turn", "usage": usage}
    found = anthropic_messages.decode(body, asking("anthropic:m")).usage
    assert (found.input_tokens, found.cached_tokens, found.output_tokens) == (1250, 50, 78)


# ---------------------------------------------------------------- several replies at once


def choice(index: int, text: str = "", **more: Any) -> dict[str, Any]:
    return {"index": index, "delta": {"content": text} if text else {}, **more}


@pytest.mark.parametrize(("first", "asked_for"), [(0, {"n": 2}), (1, {"n": 2}), (0, {})])
def test_of_interleaved_choices_one_is_read(first: int, asked_for: dict[str, Any]) -> None:
    order = [choice(first, "A" if first == 0 else "X"), choice(1 - first, "X" if first == 0 else "A")]
    end = [choice(1, finish_reason="stop"), choice(0, "B"), choice(1, "Y"), choice(0, finish_reason="length")]
    request = asking("openai-chat:m", settings=ModelSettings(extra=asked_for))
    reply = of_stream(openai_chat, request, *({"id": "r1", "choices": [one]} for one in [*order, *end]))
    assert (reply.text, reply.stop) == ("AB", "length")


def test_a_chunk_may_hold_them_all_and_a_whole_reply_does() -> None:
    request = asking("openai-chat:m")
    chunks = [
        {"choices": [choice(1, "X"), choice(0, "A")]} | {"id": "r1"},
        {"choices": [choice(0, finish_reason="stop"), choice(1, finish_reason="stop")]},
    ]
    assert of_stream(openai_chat, asking("openai-chat:m", settings=ModelSettings(extra={"n": 2})), *chunks).text == "A"
    whole = [{"index": index, "message": {"content": text}, "finish_reason": "stop"} for index, text in enumerate("AX")]
    assert openai_chat.decode({"choices": whole}, request).text == "A"
    candidates = [{"index": 1, "content": {"parts": [{"text": "X"}]}}, {"content": {"parts": [{"text": "A"}]}}]
    body = {"candidates": [{**candidate, "finishReason": "STOP"} for candidate in candidates]}
    assert gemini.decode(body, asking("google:gemini-3-flash")).text == "A"


def test_a_server_that_counts_its_only_choice_from_one_is_heard() -> None:
    chunks = [choice(1, "Hi."), choice(1, finish_reason="stop")]
    assert of_stream(openai_chat, asking("vllm:m"), *({"choices": [chunk]} for chunk in chunks)).text == "Hi."


# ---------------------------------------------------------------- what settings share a field with


def test_skills_are_loaded_into_the_container_that_is_there() -> None:
    skills = {"skills": [{"type": "anthropic", "skill_id": "pptx", "version": "latest"}]}
    body = {"content": [{"type": "text", "text": "Hi."}], "container": {"id": "cont_1"}, "stop_reason": "end_turn"}
    settings = ModelSettings(extra={"container": skills})
    first = asking("anthropic:m", settings=settings)
    assert anthropic_messages.encode(first)[1]["container"] == skills
    said = anthropic_messages.decode(body, first).message
    again = asking("anthropic:m", ASK, said, ASK, settings=settings)
    assert anthropic_messages.encode(again)[1]["container"] == {"id": "cont_1", **skills}
    theirs = ModelSettings(extra={"container": "cont_2"})
    assert anthropic_messages.encode(asking("anthropic:m", ASK, said, ASK, settings=theirs))[1]["container"] == "cont_2"
    named = ModelSettings(extra={"container": {"id": "cont_3", **skills}})
    sent = anthropic_messages.encode(asking("anthropic:m", ASK, said, ASK, settings=named))[1]["container"]
    assert sent == {"id": "cont_3", **skills}


def test_stream_options_of_ones_own_keep_the_usage() -> None:
    settings = ModelSettings(extra={"stream_options": {"include_obfuscation": False}})
    body = openai_chat.encode(asking("openai-chat:m", settings=settings))[1]
    assert body["stream_options"] == {"include_usage": True, "include_obfuscation": False}


# ---------------------------------------------------------------- a schema beside a forced call


@pytest.mark.parametrize("tool_choice", ["required", "weather"])
def test_gemini_is_not_asked_for_a_schema_of_a_text_that_it_must_not_write(tool_choice: str) -> None:
    forced = asking(
        "google:gemini-3-flash", tools=[TOOL], output_schema=SCHEMA, settings=ModelSettings(tool_choice=tool_choice)
    )
    body = gemini.encode(forced)[1]
    assert body["toolConfig"]["functionCallingConfig"]["mode"] == "ANY"
    assert "generationConfig" not in body


@pytest.mark.parametrize("options", [{"settings": ModelSettings(tool_choice="auto")}, {}, {"conclude": True}])
def test_it_is_where_it_may_write_one(options: dict[str, Any]) -> None:
    body = gemini.encode(asking("google:gemini-3-flash", tools=[TOOL], output_schema=SCHEMA, **options))[1]
    assert body["generationConfig"]["responseJsonSchema"] == SCHEMA


@pytest.mark.parametrize("model", ["openai:m", "openai-chat:m", "anthropic:claude-opus-5"])
def test_the_others_take_both(model: str) -> None:
    request = asking(model, tools=[TOOL], output_schema=SCHEMA, settings=ModelSettings(tool_choice="required"))
    body = protocol_by_name(row_of(request.model.provider).protocol).encode(request)[1]
    assert body["tool_choice"]
    assert any(name in body for name in ("text", "response_format", "output_config"))


# ---------------------------------------------------------------- thoughts after words


def test_a_reasoning_after_the_message_keeps_what_is_encrypted_in_it() -> None:
    """OpenRouter's Responses: Gemini's signatures come last."""
    message = {"type": "message", "id": "m1", "role": "assistant", "status": "completed"}
    said = {**message, "content": [{"type": "output_text", "text": "Hi.", "annotations": []}]}
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c2ln"}
    request = asking("openresponses:google/gemini-3-pro")
    reply = openai_responses.decode({"status": "completed", "output": [said, reasoning]}, request)
    items = openai_responses.encode(asking("openresponses:google/gemini-3-pro", ASK, reply.message, ASK))[1]["input"]
    assert items[1:3] == [said, reasoning]


def test_openai_is_not_sent_a_reasoning_that_nothing_follows() -> None:
    """It answers 400: of a reply that was cut off, or in which it thought and said nothing."""
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi."}]}
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c2ln"}
    cut = openai_responses.decode({"status": "completed", "output": [said, reasoning]}, asking("openai:m"))
    items = openai_responses.encode(asking("openai:m", ASK, cut.message, ASK))[1]["input"]
    assert [item.get("type", item.get("role")) for item in items] == ["user", "message", "user"]
    for model in ("openai:m", "openresponses:m"):
        alone = openai_responses.decode({"status": "completed", "output": [reasoning]}, asking(model))
        items = openai_responses.encode(asking(model, ASK, alone.message, ASK))[1]["input"]
        assert [item["role"] for item in items] == ["user", "user"]


def test_what_an_items_last_event_left_out_is_taken_from_the_response() -> None:
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": None}
    said = {"type": "message", "id": "m1", "role": "assistant", "content": [{"type": "output_text", "text": "Hi."}]}
    whole = {"status": "completed", "output": [said, {**reasoning, "encrypted_content": "c2ln"}]}
    events = [
        {"type": "response.output_item.done", "output_index": 0, "item": said},
        {"type": "response.output_item.done", "output_index": 1, "item": reasoning},
        {"type": "response.completed", "response": whole},
    ]
    request = asking("openresponses:m")
    reply = of_stream(openai_responses, request, *events)
    assert reply == openai_responses.decode(whole, request)
    assert "c2ln" in reply.model_dump_json()


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_thoughts_in_two_fields_go_back_in_both(stream: bool) -> None:
    """MiniMax and others say them as `reasoning_content` and as `reasoning_details`."""
    details = [{"type": "reasoning.text", "text": "Hm.", "index": 0, "signature": "c2ln"}]
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    message = {"reasoning_content": "Hm.", "reasoning_details": details, "tool_calls": [call]}
    request = asking("huggingface:minimax-m2")
    if stream:
        chunk = {"choices": [{"index": 0, "delta": message, "finish_reason": "tool_calls"}]}
        reply = of_stream(openai_chat, request, chunk)
    else:
        reply = openai_chat.decode({"choices": [{"message": message, "finish_reason": "tool_calls"}]}, request)
    sent = openai_chat.encode(asking("huggingface:minimax-m2", ASK, reply.message))[1]["messages"][1]
    assert (sent["reasoning_content"], sent["reasoning_details"]) == ("Hm.", details)
    elsewhere = openai_chat.encode(asking("azure:m", ASK, reply.message))[1]["messages"][1]
    assert elsewhere.keys() == {"role", "content", "tool_calls"}


# ---------------------------------------------------------------- a stream that seems to be over


CODE = {"executableCode": {"language": "PYTHON", "code": "print(1)"}}
RAN = {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}}


def chunk(*parts: dict[str, Any], finish: str = "") -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}}
    return {"candidates": [candidate | ({"finishReason": finish} if finish else {})]}


def gemini_stream(*chunks: dict[str, Any], **options: Any) -> Any:
    assembler = gemini.Assembler(asking("google:gemini-3-flash", **options))
    for one in chunks:
        assembler.feed(Event(json.dumps(one)))
    return assembler


def test_gemini_stops_twice_when_it_runs_code_and_a_cut_between_is_no_reply() -> None:
    begun = [chunk({"text": "Let me count."}), chunk(CODE, finish="STOP")]
    assert not gemini_stream(*begun).complete
    with pytest.raises(InvalidReply, match="ended in the middle"):
        gemini_stream(*begun).finish()
    ran = [*begun, chunk(RAN, finish="STOP")]
    assert not gemini_stream(*ran).complete  # what it makes of it is still to come
    reply: Reply = gemini_stream(*ran, chunk({"text": "It is 1."}, finish="STOP")).finish()
    assert reply.text == "Let me count.It is 1."
    assert [part.data for part in reply.message.parts if isinstance(part, ServerToolUse)] == [CODE, RAN]


def test_where_it_may_run_code_its_first_stop_is_not_taken_for_the_last() -> None:
    said = chunk({"text": "Let me count."}, finish="STOP")
    assert gemini_stream(said).complete
    assert not gemini_stream(said, server_tools=[CodeExecution()]).complete
    assert not gemini_stream(said, raw_tools=[{"codeExecution": {}}]).complete
    assert gemini_stream(said, server_tools=[CodeExecution()]).finish().text == "Let me count."


async def test_a_connection_that_breaks_after_the_first_stop_is_asked_again() -> None:
    """Over a real connection: the same bytes, with and without the end of the stream."""
    first = f"data: {json.dumps(chunk(CODE, finish='STOP'))}\r\n\r\n".encode()
    rest = f"data: {json.dumps(chunk(RAN, {'text': 'It is 1.'}, finish='STOP'))}\r\n\r\n".encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n"
    for sent, cut in ((first, True), (first + rest, False)):
        async with server(sends(head % len(first + rest) + sent)) as base_url:
            model = Model("google:gemini-3-flash", base_url=base_url)
            request = Request(model=model, messages=[ASK], server_tools=[CodeExecution()])
            if cut:
                with pytest.raises(ConnectionFailed):
                    await ask(request)
            else:
                assert (await ask(request)).text == "It is 1."
    await connections.aclose()
