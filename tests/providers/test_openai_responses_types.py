"""Any transcript that a loop can produce gives a body that the openai SDK's own types accept."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pydantic
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from everturn.models import Model, ModelSettings
from everturn.providers.base import Request, ToolSpec
from everturn.providers.openai_responses import decode, encode
from everturn.records import Message, Text, Thinking, ToolCall, ToolResult
from everturn.tools.server_tools import CodeExecution, WebSearch
from tests.providers.drawn import drawn_out, options, said, texts, values

arguments = st.one_of(values.map(json.dumps), texts)
names = st.one_of(st.sampled_from(["weather", "functions.weather"]), st.text(min_size=1, max_size=80))
statuses = st.sampled_from(["completed", "incomplete"])


def item(kind: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({"type": st.just(kind), "id": st.text(min_size=1, max_size=8), **fields})


blocks = st.one_of(
    st.fixed_dictionaries({"type": st.just("output_text"), "text": texts, "annotations": st.just([])}),
    st.fixed_dictionaries({"type": st.just("refusal"), "refusal": texts}),
)
summaries = st.lists(st.fixed_dictionaries({"type": st.just("summary_text"), "text": texts}), max_size=3)
items = st.one_of(
    item("message", role=st.just("assistant"), status=statuses, content=st.lists(blocks, max_size=2)),
    item("reasoning", summary=summaries, encrypted_content=st.one_of(st.none(), st.just("gAAA"))),
    item("function_call", call_id=texts, name=names, arguments=arguments, status=statuses),
    item("web_search_call", status=st.just("completed"), action=st.just({"type": "search", "query": "x"})),
    item(
        "code_interpreter_call",
        status=st.just("completed"),
        container_id=st.just("cntr"),
        code=texts,
        outputs=st.lists(st.just({"type": "logs", "logs": "7"}), max_size=1),
    ),
    item("custom_tool_call", call_id=texts, name=names, input=texts),
    item("compaction", encrypted_content=texts),
)
foreign = st.lists(
    st.one_of(
        st.builds(Text, text=texts),
        st.builds(Thinking, text=texts),
        st.builds(ToolCall, call_id=st.uuids().map(str), name=names, arguments=values),
    ),
    max_size=3,
)


@st.composite
def transcripts(draw: st.DrawFn) -> list[Message]:
    messages = [Message(role="user", parts=draw(said))]
    for _ in range(draw(st.integers(0, 4))):
        if draw(st.booleans()):
            body = {"status": draw(statuses), "output": draw(st.lists(items, max_size=4))}
            messages.append(decode(body, Request(model=Model("openai:m"), messages=messages)).message)
        else:
            parts = tuple(draw(foreign))
            messages.append(Message(role="assistant", parts=parts, provider=draw(st.sampled_from(["", "anthropic"]))))
        answered = [call for call in messages[-1].tool_calls if draw(st.booleans())]
        results = (
            ToolResult(call_id=call.call_id, name=call.name, content=draw(said), is_error=draw(st.booleans()))
            for call in answered
        )
        messages.append(Message(role="tool", parts=tuple(results)))
        if draw(st.booleans()):
            messages.append(Message(role="user", parts=draw(said)))
    return messages


@pytest.fixture(scope="module")
def accepted() -> Any:
    from openai.types.responses import response_create_params as types

    plain = pydantic.TypeAdapter(types.ResponseCreateParamsNonStreaming)
    streaming = pydantic.TypeAdapter(types.ResponseCreateParamsStreaming)
    return lambda body: drawn_out((streaming if body.get("stream") else plain).validate_python(body))


@pytest.mark.filterwarnings("ignore::everturn.tools.server_tools.UnsupportedParameter")
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(messages=transcripts(), given_settings=options, conclude=st.booleans(), tools=st.booleans())
def test_the_sdks_types_accept_what_we_send(
    accepted: Any, messages: list[Message], given_settings: dict[str, Any], conclude: bool, tools: bool
) -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    _, body = encode(
        Request(
            model=Model("openai:gpt-5.5"),
            messages=messages,
            instructions="Be brief.",
            tools=[ToolSpec("weather", "The weather", schema)] if tools else (),
            server_tools=[WebSearch(allowed_domains=("a.org",)), CodeExecution()] if tools else (),
            settings=ModelSettings(**given_settings),
            conversation_id="order-81",
            output_schema=schema,
            conclude=conclude,
        )
    )
    body = json.loads(json.dumps(body))
    accepted(body)
    check_pairs(body["input"])


def check_pairs(sent: list[dict[str, Any]]) -> None:
    """Each call has its one result, after it; ids fit; a reasoning is never the last that a message has."""
    calls = [entry["call_id"] for entry in sent if entry.get("type") == "function_call"]
    outputs = [entry["call_id"] for entry in sent if entry.get("type") == "function_call_output"]
    assert calls == outputs
    assert len({*calls}) == len(calls)
    for entry, following in pairwise([*sent, {}]):
        if entry.get("type") == "reasoning":
            assert following.get("type") not in {None, "function_call_output"}
            assert entry["encrypted_content"]


def test_the_check_sees_into_the_items(accepted: Any) -> None:
    with pytest.raises(pydantic.ValidationError):
        accepted({"model": "m", "input": [{"type": "function_call", "name": "weather"}]})
