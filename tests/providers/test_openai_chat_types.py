"""Any transcript that a loop can produce gives a body that the openai SDK's own types accept, and that adds up."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from everturn.models import Model, ModelSettings
from everturn.providers.base import Request, ToolSpec
from everturn.providers.openai_chat import decode, encode
from everturn.records import (
    Message,
    Opaque,
    Part,
    ServerToolUse,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from tests.providers.drawn import drawn_out, options, pictures, said, texts, values

OPENAI = "openai-chat:gpt-5.5"

names = st.one_of(st.sampled_from(["weather", "functions.weather"]), st.text(max_size=80))
ids = st.one_of(st.none(), st.text(max_size=60))

entries = st.one_of(
    st.fixed_dictionaries(
        {
            "id": ids,
            "type": st.just("function"),
            "function": st.fixed_dictionaries({"name": names, "arguments": st.one_of(values.map(json.dumps), texts)}),
        },
        optional={"extra_content": values, "index": st.integers(0, 3)},
    ),
    st.fixed_dictionaries(
        {
            "id": ids,
            "type": st.just("custom"),
            "custom": st.fixed_dictionaries({"name": names, "input": texts}),
        }
    ),
)
replies = st.fixed_dictionaries(
    {"role": st.just("assistant"), "content": st.one_of(st.none(), texts)},
    optional={
        "tool_calls": st.lists(entries, max_size=4),
        "reasoning": texts,
        "reasoning_details": st.lists(st.just({"type": "reasoning.text", "text": "hm"}), max_size=2),
        "annotations": st.lists(st.just({"type": "url_citation"}), max_size=1),
        "refusal": texts,
    },
)
foreign: st.SearchStrategy[list[Part]] = st.lists(
    st.one_of(
        st.builds(Text, text=texts),
        st.builds(Thinking, text=texts),
        st.builds(ServerToolUse, name=texts, data=values),
        st.builds(Opaque, data=values),
        st.builds(ToolCall, call_id=st.uuids().map(str), name=names, arguments=values),
        pictures,
    ),
    max_size=4,
)


@st.composite
def transcripts(draw: st.DrawFn) -> list[Message]:
    messages = [Message(role="user", parts=draw(said))]
    for _ in range(draw(st.integers(0, 4))):
        if draw(st.booleans()):
            body = {"choices": [{"message": draw(replies), "finish_reason": "stop"}]}
            messages.append(decode(body, Request(model=Model(OPENAI), messages=messages)).message)
        else:
            provider = draw(st.sampled_from(["", "anthropic"]))
            messages.append(Message(role="assistant", parts=tuple(draw(foreign)), provider=provider))
        results = [
            ToolResult(call_id=call.call_id, name=call.name, content=draw(said), is_error=draw(st.booleans()))
            for call in messages[-1].tool_calls
            if draw(st.booleans())
        ]
        messages.append(Message(role="tool", parts=tuple(results)))
        if draw(st.booleans()):
            messages.append(Message(role="user", parts=draw(said)))
    return messages


@pytest.fixture(scope="module")
def accepted() -> Any:
    from openai.types.chat import completion_create_params as types

    plain = TypeAdapter(types.CompletionCreateParamsNonStreaming)
    streaming = TypeAdapter(types.CompletionCreateParamsStreaming)
    return lambda body: drawn_out((streaming if body.get("stream") else plain).validate_python(body))


@pytest.mark.filterwarnings("ignore::everturn.tools.server_tools.UnsupportedParameter")
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(messages=transcripts(), given_settings=options, conclude=st.booleans(), tools=st.booleans())
def test_the_sdks_types_accept_what_we_send(
    accepted: Any, messages: list[Message], given_settings: dict[str, Any], conclude: bool, tools: bool
) -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    asked = Request(
        model=Model(OPENAI),
        messages=messages,
        instructions="Be brief.",
        tools=[ToolSpec("weather", "The weather", schema)] if tools else (),
        settings=ModelSettings(**given_settings),
        conversation_id="order-81",
        output_schema=schema,
        conclude=conclude,
    )
    body = json.loads(json.dumps(encode(asked)[1]))
    accepted(body)
    # The servers' own rule: right behind its message, each call has one result, and there are no others.
    open_calls: list[str] = []
    for message in body["messages"]:
        if message["role"] == "tool":
            assert open_calls.pop(0) == message["tool_call_id"]
            continue
        assert not open_calls
        open_calls = [entry["id"] for entry in message.get("tool_calls", ())]
    assert not open_calls
    assert encode(asked)[1] == encode(asked)[1]
