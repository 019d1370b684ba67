"""Shapes that were met in recordings beyond those beside the repository, made by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from everturn.errors import InvalidReply, RequestRefused
from everturn.http.sse import Event
from everturn.models import Model, ModelSettings
from everturn.providers import anthropic_messages, ask, gemini, openai_chat, openai_responses
from everturn.providers.base import Request, ToolSpec
from everturn.records import Message, Thinking
from tests.providers.sockets import Google

TOOL = ToolSpec("weather", "", {"type": "object", "properties": {}})


def asking(model: str, *messages: Message, **options: Any) -> Request:
    return Request(model=Model(model), messages=messages or [Message.user("?")], **options)


CALLED = {"functionCall": {"name": "list_files", "args": {}}, "thoughtSignature": "c2ln"}
UNEXPECTED = {"candidates": [{"content": {"parts": [CALLED]}, "finishReason": "UNEXPECTED_TOOL_CALL"}]}


def test_a_call_of_a_tool_that_gemini_was_not_given_is_answered_and_not_asked_for_again() -> None:
    reply = gemini.decode(UNEXPECTED, asking("google:gemini-3-flash", tools=[TOOL]))
    assert (reply.stop, [call.name for call in reply.tool_calls]) == ("tool_calls", ["list_files"])
    assert reply.tool_calls[0].extra == {"thoughtSignature": "c2ln"}


def test_without_any_tool_nobody_could_answer_it() -> None:
    with pytest.raises(InvalidReply):
        gemini.decode(UNEXPECTED, asking("google:gemini-3-flash"))


def test_mistrals_thoughts_are_blocks_to_and_fro() -> None:
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
    content = [thought, {"type": "text", "text": "Yes."}]
    body = {"choices": [{"message": {"role": "assistant", "content": content}, "finish_reason": "stop"}]}
    message = openai_chat.decode(body, asking("mistral:magistral")).message
    sent = openai_chat.encode(asking("mistral:magistral", Message.user("?"), message))[1]["messages"]
    assert sent[-1] == {"role": "assistant", "content": content}
    elsewhere = openai_chat.encode(asking("groq:m", Message.user("?"), message))[1]["messages"]
    assert elsewhere[-1] == {"role": "assistant", "content": "Yes."}


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
@pytest.mark.parametrize("provider", ["openai-chat", "huggingface"])
def test_thoughts_of_a_server_that_we_do_not_know_go_back_where_they_came(provider: str, field: str) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    body = {"choices": [{"message": {"content": None, field: "Hm.", "tool_calls": [call]}}]}
    message = openai_chat.decode(body, asking(f"{provider}:m")).message
    assert isinstance(message.parts[0], Thinking)
    sent = openai_chat.encode(asking(f"{provider}:m", Message.user("?"), message))[1]["messages"]
    assert sent[1][field] == "Hm."
    elsewhere = openai_chat.encode(asking("azure:m", Message.user("?"), message))[1]["messages"]
    assert elsewhere[1].keys() == {"role", "content", "tool_calls"}


def test_a_response_in_the_background_is_refused_before_it_is_paid_for() -> None:
    with pytest.raises(RequestRefused, match="background"):
        openai_responses.encode(asking("openai:m", settings=ModelSettings(extra={"background": True})))


def test_zeros_are_meant_where_the_input_is_counted_again() -> None:
    assembler = anthropic_messages.Assembler(asking("anthropic:m"))
    for data in (
        '{"type":"message_start","message":{"usage":{"input_tokens":100,"cache_read_input_tokens":55096}}}',
        '{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":181,"cache_read_input_tokens":0,"output_tokens":8}}',
        '{"type":"message_stop"}',
    ):
        assembler.feed(Event(data))
    usage = assembler.finish().usage
    assert (usage.input_tokens, usage.cached_tokens, usage.output_tokens) == (181, 0, 8)


async def test_headers_of_ones_own_are_sent_beside_the_body_and_never_in_place_of_the_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "sk-ours")
    answer = {"candidates": [{"content": {"parts": [{"text": "Hi."}]}, "finishReason": "STOP"}]}
    async with Google(("application/json", json.dumps(answer).encode())) as server:
        model = Model("google:gemini-3-flash", base_url=f"{server.base_url}?tenant=a")
        headers = {"x-beta": "context-1m", "x-goog-api-key": "sk-theirs"}
        settings = ModelSettings(extra={"extra_headers": headers, "labels": {"a": "b"}})
        await ask(Request(model=model, messages=[Message.user("?")], settings=settings))
    (head,) = server.heads
    assert "x-beta: context-1m\r\n" in head
    assert "x-goog-api-key: sk-ours\r\n" in head
    assert "sk-theirs" not in head
    assert head.startswith("post /v1beta/models/gemini-3-flash:streamgeneratecontent?alt=sse&tenant=a http")
    assert server.bodies[0]["labels"] == {"a": "b"}
    assert "extra_headers" not in server.bodies[0]
