"""A schema that a provider makes no grammar of: asked again without, and the model reads it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from everturn.errors import RequestRefused
from everturn.models import Model, ModelSettings
from everturn.providers import Request, ToolSpec, gemini, model_call, refused_grammars
from everturn.records import Message
from everturn.tools.options import ToolOptions
from tests.support.provider_server import Answer, Asked, ProviderServer, Status

TEXT = {"type": "string"}
SCHEMA = {"type": "object", "properties": {"a": TEXT}, "required": ["a"], "additionalProperties": False}
REPLIES: dict[str, Any] = {
    "openai-chat": {"choices": [{"message": {"content": "{}"}, "finish_reason": "stop"}]},
    "openai": {
        "status": "completed",
        "output": [{"type": "message", "content": [{"type": "output_text", "text": "{}"}]}],
    },
    "anthropic": {"content": [{"type": "text", "text": "{}"}], "stop_reason": "end_turn"},
    "google": {"candidates": [{"content": {"parts": [{"text": "{}"}]}, "finishReason": "STOP"}]},
}
CLAUDE = "anthropic:claude-opus-5-5"
TOO_MANY = "Schemas contains too many optional parameters (87), which would make grammar compilation inefficient."


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("ANTHROPIC", "OPENAI", "GEMINI"):
        monkeypatch.setenv(f"{name}_API_KEY", "not-a-real-key-0000")
    yield
    refused_grammars._refused.clear()


def holds(body: Any) -> bool:
    """Whether the provider is to hold the model to the schema."""
    config = body.get("output_config") or body.get("generationConfig") or body.get("text") or body
    return any(config.get(name) for name in ("format", "responseJsonSchema", "response_format"))


def is_strict(body: Any) -> bool:
    return '"strict":true' in json.dumps(body.get("tools", []), separators=(",", ":"))


def asking(model: str, server: ProviderServer, **options: Any) -> Request:
    settings = ModelSettings(stream=False)
    at_server = Model(model, base_url=server.base_url)
    return Request(at_server, [Message.user("?")], output_schema=SCHEMA, settings=settings, **options)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (CLAUDE, TOO_MANY),
        (CLAUDE, "output_config.format.schema: Invalid schema: The compiled grammar is too large, which ..."),
        ("openai:gpt-5.5", "Invalid schema for response_format 'output': 6 levels of nesting exceeds limit of 5."),
        ("openai-chat:gpt-5.5", "Invalid schema for response_format 'output': 6 levels of nesting exceeds limit of 5."),
        ("google:gemini-3-pro", "The specified schema produces a constraint that has too many states for serving."),
        (
            "google:gemini-3-pro",
            "A schema in GenerationConfig in the request exceeds the maximum allowed nesting depth.",
        ),
    ],
)
async def test_it_is_asked_once_more_in_words_and_from_then_on(model: str, message: str) -> None:
    def answer(request: Asked) -> Answer:
        if holds(request.body):
            return Status(400, {"error": {"message": message, "type": "invalid_request_error"}})
        return REPLIES[model.partition(":")[0]]  # type: ignore[no-any-return]

    with ProviderServer(answer) as server:
        for _ in range(2):
            reply = await model_call.ask(asking(model, server))
            assert reply.text == "{}"
        bodies = server.bodies
    assert [holds(body) for body in bodies] == [True, False, False]
    assert ["It has to fit this JSON schema" in json.dumps(body) for body in bodies] == [False, True, True]


async def test_strict_tools_are_what_is_given_up_first() -> None:
    def answer(request: Asked) -> Answer:
        if is_strict(request.body):
            return Status(
                400, {"error": {"message": "tools.0.custom: For 'integer' type, property 'minimum' is not supported"}}
            )
        return REPLIES["anthropic"]  # type: ignore[no-any-return]

    strict = ToolSpec("find", "", SCHEMA, ToolOptions(strict=True))
    with ProviderServer(answer) as server:
        await model_call.ask(asking(CLAUDE, server, tools=(strict, ToolSpec("look", "", SCHEMA))))
        bodies = server.bodies
    assert [(is_strict(body), holds(body)) for body in bodies] == [(True, True), (False, True)]


@pytest.mark.parametrize(("message", "requests"), [(TOO_MANY, 2), ("max_tokens: too large", 1)])
async def test_what_stays_refused_is_refused(message: str, requests: int) -> None:
    with ProviderServer(lambda _: Status(400, {"error": {"message": message}})) as server:
        with pytest.raises(RequestRefused):
            await model_call.ask(asking(CLAUDE, server))
        assert len(server.bodies) == requests


@pytest.mark.filterwarnings("ignore::everturn.tools.server_tools.UnsupportedParameter")
def test_gemini_2_5_reads_the_schema_that_it_does_not_take_beside_tools() -> None:
    tools = (ToolSpec("find", "", SCHEMA),)
    request = Request(Model("google:gemini-2.5-pro"), [Message.user("?")], output_schema=SCHEMA, tools=tools)
    body = gemini.encode(request)[1]
    assert not holds(body)
    assert "It has to fit this JSON schema" in json.dumps(body["systemInstruction"])
