"""Anthropic Messages: any transcript that the loop can produce is what the official SDK's own types accept."""

from __future__ import annotations

import json
import warnings
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from everturn.models import Model, ModelSettings
from everturn.providers.anthropic_messages import encode
from everturn.providers.base import Request, ToolSpec
from everturn.records import Document, Image, Message, Opaque, Part, ServerToolUse, Text, Thinking, ToolCall, ToolResult
from everturn.tools.server_tools import CodeExecution, UnsupportedParameter, WebSearch
from tests.providers.drawn import drawn_out

WEATHER = ToolSpec("weather", "The weather", {"type": "object", "properties": {"city": {"type": "string"}}})
THOUGHT = Thinking(text="hm", extra={"signature": "s"})

words = st.text(max_size=12)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | words,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(words, inner, max_size=2),
    max_leaves=4,
)
texts = st.builds(Text, text=words)
images = st.sampled_from(
    [
        Image(data="AAAA", media_type="image/png"),
        Image(url="https://x/y.png"),
        Image(url="data:image/gif;base64,AA=="),
        Document(data="JVBE", media_type="application/pdf", name="a"),
        Document(data="aGk=", media_type="text/plain"),
        Document(data="AA==", media_type="x/y"),
    ]
)
users = st.builds(Message.user, st.lists(texts | images, max_size=3))
own = st.sampled_from(
    [
        THOUGHT,
        Thinking(text="cut off"),
        Opaque(data={"type": "redacted_thinking", "data": "d"}),
        Opaque(data={"container": {"id": "k1"}}),
        ServerToolUse(
            name="web_search",
            data={"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}},
        ),
        ServerToolUse(name="web_search", data={"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}),
    ]
)
names = st.sampled_from(["weather", "made.up", "", "ü" * 200])


@st.composite
def transcripts(draw: st.DrawFn) -> list[Message]:
    """What the loop can produce: calls with ids of their own, results or not, and users who talk in between."""
    messages = [draw(users)]
    for turn in range(draw(st.integers(0, 4))):
        calls = [
            ToolCall(
                call_id=draw(st.sampled_from([f"c{turn}_{number}", f"call.{turn}:{number}"])),
                name=draw(names),
                arguments=draw(st.dictionaries(words, values, max_size=2)),
                unparsed=draw(st.none() | words),
                extra=draw(st.sampled_from([{}, {"caller": {"type": "direct"}}])),
            )
            for number in range(draw(st.integers(0, 3)))
        ]
        parts: list[Part] = [*draw(st.lists(texts | own, max_size=4)), *calls]
        provider = draw(st.sampled_from(["anthropic", "openai"]))
        messages.append(Message(role="assistant", parts=tuple(parts), provider=provider))
        for call in calls:
            content = tuple(draw(st.lists(texts | images, max_size=2)))
            result = ToolResult(call_id=call.call_id, content=content, is_error=draw(st.booleans()))
            if draw(st.booleans()) or turn % 2:
                messages.append(Message(role="tool", parts=(result,)))
        if draw(st.booleans()) or not calls:
            messages.append(draw(users))
    return messages


def check(value: Any) -> None:
    """The API's own rules, which its types don't say."""
    for number, message in enumerate(value):
        blocks = message["content"]
        kinds = [block["type"] for block in blocks]
        assert blocks
        assert message["role"] == ("assistant" if number % 2 else "user")
        assert all(block["text"].strip() for block in blocks if block["type"] == "text")
        assert all(block["signature"] for block in blocks if block["type"] == "thinking")
        if "tool_use" in kinds:
            asked = [block["id"] for block in blocks if block["type"] == "tool_use"]
            following = value[number + 1]["content"]
            answered = [block.get("tool_use_id") for block in following[: len(asked)]]
            assert answered == asked
        assert kinds.count("tool_result") == 0 or "tool_use" in [
            block["type"] for block in value[number - 1]["content"]
        ]


@pytest.fixture(scope="module")
def sdk() -> TypeAdapter[Any]:
    from anthropic.types import MessageCreateParams

    return TypeAdapter(MessageCreateParams)


@given(
    messages=transcripts(),
    options=st.fixed_dictionaries(
        {
            "reasoning_effort": st.sampled_from([None, "none", "low", "xhigh"]),
            "tool_choice": st.sampled_from([None, "auto", "required", "weather"]),
            "parallel_calls": st.sampled_from([None, False]),
            "stream": st.booleans(),
            "cache": st.booleans(),
        }
    ),
    model=st.sampled_from(["claude-opus-5", "claude-haiku-4-5", "claude-fable-5", "else"]),
)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_transcript_is_what_the_sdks_types_accept(
    sdk: TypeAdapter[Any], messages: list[Message], options: dict[str, Any], model: str
) -> None:
    request = Request(
        model=Model(f"anthropic:{model}"),
        messages=messages,
        instructions="Be.",
        tools=[WEATHER],
        server_tools=[WebSearch(), CodeExecution()],
        settings=ModelSettings(**options),
        output_schema={"type": "object", "properties": {"x": {"type": "integer"}}},
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnsupportedParameter)
        _, body = encode(request)
    body = json.loads(json.dumps(body))
    check(body["messages"])
    assert drawn_out(sdk.validate_python(body)) == body
