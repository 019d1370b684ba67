"""Gemini: any transcript that the loop can produce is one that Google's own SDK takes."""

from __future__ import annotations

import base64
import json
import warnings
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from everturn.models import Model, ModelSettings
from everturn.providers.base import Request, ToolSpec
from everturn.providers.gemini import decode, encode
from everturn.records import Document, Image, Message, Opaque, Part, ServerToolUse, Text, Thinking, ToolCall, ToolResult
from everturn.tools.server_tools import CodeExecution, UnsupportedParameter, WebSearch

texts = st.text(max_size=8)
names = st.one_of(st.sampled_from(["weather", "roll_dice"]), texts)
base64s = st.binary(min_size=1, max_size=9).map(lambda data: base64.b64encode(data).decode())
signatures = st.one_of(st.just({}), base64s.map(lambda data: {"thoughtSignature": data}))
json_objects = st.dictionaries(
    texts, st.one_of(texts, st.integers(-(2**53), 2**53), st.booleans(), st.none(), st.lists(texts))
)
media = st.one_of(
    st.builds(Image, data=base64s, media_type=st.sampled_from(["image/png", "image/gif"])),
    st.builds(Image, url=st.just("https://example.org/a.png")),
    st.builds(Document, data=base64s, media_type=st.just("application/pdf")),
    st.builds(Document, url=st.just("https://example.org/a")),
)
plain_texts = st.builds(Text, text=texts)

wire_parts = st.one_of(
    st.builds(lambda text, extra: {"text": text, **extra}, texts, signatures),
    st.builds(lambda text, extra: {"text": text, "thought": True, **extra}, texts, signatures),
    st.builds(
        lambda name, args, call_id, extra: {"functionCall": {"name": name, "args": args, **call_id}, **extra},
        names,
        json_objects,
        st.sampled_from([{}, {"id": "a"}, {"id": "b"}]),
        signatures,
    ),
    st.builds(lambda code, extra: {"executableCode": {"language": "PYTHON", "code": code}, **extra}, texts, signatures),
    st.builds(lambda out: {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": out}}, texts),
    st.builds(lambda extra: {"toolCall": {"id": "s", "toolType": "GOOGLE_SEARCH_WEB"}, **extra}, signatures),
    st.builds(lambda data: {"inlineData": {"mimeType": "image/png", "data": data}}, base64s),
)
others_parts = st.one_of(
    plain_texts,
    st.builds(Thinking, text=texts, extra=st.just({"signature": "?"})),
    st.builds(Opaque, data=st.just({"type": "new"})),
    st.builds(ServerToolUse, name=st.just("web_search"), data=st.just({"type": "server_tool_use"})),
    st.builds(ToolCall, call_id=texts, name=names, arguments=json_objects, extra=st.just({"caller": 1})),
    st.builds(ToolCall, call_id=texts, name=names, unparsed=texts),
)


@st.composite
def transcripts(draw: st.DrawFn, *, model: Model) -> list[Message]:
    messages: list[Message] = []
    for _ in range(draw(st.integers(1, 4))):
        messages.append(Message.user(draw(st.lists(st.one_of(plain_texts, media), min_size=1, max_size=3))))
        if draw(st.booleans()):
            body = {
                "candidates": [
                    {"content": {"parts": draw(st.lists(wire_parts, max_size=5))}, "finishReason": "MAX_TOKENS"}
                ]
            }
            messages.append(decode(body, Request(model=model, messages=messages)).message)
        else:
            parts = tuple(draw(st.lists(others_parts, max_size=5)))
            messages.append(Message(role="assistant", parts=parts, provider=draw(st.sampled_from(["", "anthropic"]))))
        results: list[Part] = [
            ToolResult(
                call_id=call.call_id,
                name=call.name,
                content=tuple(draw(st.lists(st.one_of(plain_texts, media), max_size=3))),
                is_error=draw(st.booleans()),
            )
            for call in messages[-1].tool_calls
            if draw(st.integers(0, 9))
        ]
        if results:
            messages.append(Message(role="tool", parts=tuple(draw(st.permutations(results)))))
    return messages


def check(body: dict[str, Any]) -> None:
    """Against the SDK's types, which forbid fields that they don't know."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the SDK's own
        from google.genai import types
    for content in body["contents"]:
        types.Content.model_validate_json(json.dumps(content))
        assert content["parts"]
    for tool in body.get("tools", []):
        types.Tool.model_validate_json(json.dumps(tool))
    types.Content.model_validate_json(json.dumps(body.get("systemInstruction", {})))
    types.ToolConfig.model_validate_json(json.dumps(body.get("toolConfig", {})))
    types.GenerationConfig.model_validate_json(json.dumps(body.get("generationConfig", {})))
    known = {"contents", "systemInstruction", "tools", "toolConfig", "generationConfig"}
    assert body.keys() <= known


def check_turns(contents: list[dict[str, Any]], *, signed: bool) -> None:
    """Every content with calls has one right behind it with their results, in order, and comes after a user's."""
    for place, content in enumerate(contents):
        calls = [part for part in content["parts"] if "functionCall" in part]
        responses = [part["functionResponse"] for part in content["parts"] if "functionResponse" in part]
        assert not (responses and content["role"] == "model")
        if not calls:
            continue
        assert place > 0
        assert contents[place - 1]["role"] == "user"
        assert "thoughtSignature" in calls[0] or not signed
        following = [part["functionResponse"] for part in contents[place + 1]["parts"]]
        asked = [(part["functionCall"]["id"], part["functionCall"]["name"]) for part in calls]
        assert asked == [(response["id"], response["name"]) for response in following]
    assert sum("functionCall" in part for content in contents for part in content["parts"]) == sum(
        "functionResponse" in part for content in contents for part in content["parts"]
    )


settings = st.builds(
    ModelSettings,
    max_output_tokens=st.sampled_from([None, 9]),
    temperature=st.sampled_from([None, 0.5]),
    reasoning_effort=st.sampled_from([None, "none", "minimal", "low", "medium", "high", "xhigh", "max"]),
    tool_choice=st.sampled_from([None, "auto", "none", "required", "weather"]),
    parallel_calls=st.sampled_from([None, True, False]),
    stop=st.sampled_from([(), ("x",)]),
)
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "$defs": {"x": {"const": 1}}}


@given(data=st.data(), model=st.sampled_from(["google:gemini-3-flash", "google:gemini-2.5-pro"]))
def test_any_transcript_is_one_that_the_sdk_takes(data: st.DataObject, model: str) -> None:
    is_3 = "3" in model
    tools = data.draw(
        st.lists(st.builds(ToolSpec, names, texts, st.sampled_from([SCHEMA, {"type": "object"}])), max_size=2)
    )
    request = Request(
        model=Model(model),
        messages=data.draw(transcripts(model=Model(model))),
        instructions=data.draw(texts),
        tools=tools,
        server_tools=data.draw(st.lists(st.sampled_from([WebSearch(), CodeExecution()]))) if is_3 or not tools else [],
        settings=data.draw(settings),
        output_schema=data.draw(st.sampled_from([None, SCHEMA])),
        conclude=data.draw(st.booleans()),
    )
    before = [message.model_dump_json() for message in request.messages]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnsupportedParameter)
        _, body = encode(request)
        assert encode(request)[1] == body
    assert [message.model_dump_json() for message in request.messages] == before
    check(body)
    check_turns(body["contents"], signed=is_3)
