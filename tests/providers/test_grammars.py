"""An output's schema beside tools: at servers that write the whole reply under it, no turn that may call has it."""

from __future__ import annotations

from typing import Any

import pytest

from everturn.models import Model, ModelSettings
from everturn.providers import anthropic_messages, openai_chat, openai_responses
from everturn.providers.base import Request, ToolSpec
from everturn.records import Message
from everturn.tools.options import ToolOptions

SCHEMA = {"type": "object", "properties": {"degrees": {"type": "integer"}}, "required": ["degrees"]}
SCHEMA |= {"additionalProperties": False}
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOL = ToolSpec("get_weather", parameters=CITY)
OWN = "http://localhost:9000/v1"
PROTOCOLS: dict[str, Any] = {
    "vllm": openai_chat,
    "ollama": openai_chat,
    "openai-chat": openai_chat,
    "openrouter": openai_chat,
    "huggingface": openai_chat,
    "openresponses": openai_responses,
    "openai": openai_responses,
    "anthropic": anthropic_messages,
}


def body_of(model: str, base_url: str | None = None, **options: Any) -> dict[str, Any]:
    request = Request(Model(model, base_url=base_url), [Message.user("?")], output_schema=SCHEMA, **options)
    return PROTOCOLS[model.partition(":")[0]].encode(request)[1]  # type: ignore[no-any-return]


def has_schema(body: dict[str, Any]) -> bool:
    return bool(body.get("response_format") or body.get("text") or (body.get("output_config") or {}).get("format"))


def words(body: dict[str, Any]) -> str:
    system = body.get("instructions") or body.get("system") or ""
    return f"{system} {[message for message in body.get('messages', []) if message['role'] == 'system']}"


OVER_CALLS = [
    ("vllm:m", None),
    ("ollama:m", None),
    ("openresponses:m", OWN),
    ("openai-chat:qwen3-8b", OWN),
    ("openai-chat:openai/gpt-oss-20b", OWN),
    ("anthropic:qwen3-8b", OWN),
    ("openrouter:qwen/qwen3.8-27b", None),
    ("huggingface:zai-org/GLM-5.3", None),
]


@pytest.mark.parametrize(("model", "base_url"), OVER_CALLS)
@pytest.mark.parametrize(
    ("options", "sent"),
    [
        ({"tools": [TOOL]}, False),
        ({"tools": [TOOL], "settings": ModelSettings(tool_choice="required")}, False),
        ({"tools": [TOOL], "settings": ModelSettings(tool_choice="get_weather")}, False),
        ({"tools": [ToolSpec("get_weather", parameters=CITY, options=ToolOptions(strict=True))]}, False),
        ({"tools": [TOOL], "conclude": True}, True),
        ({"tools": [TOOL], "settings": ModelSettings(tool_choice="none")}, True),
        ({}, True),
    ],
)
@pytest.mark.filterwarnings("ignore::everturn.tools.server_tools.UnsupportedParameter")
def test_a_turn_that_may_call_is_told_the_schema_in_words(
    model: str, base_url: str | None, options: dict[str, Any], sent: bool
) -> None:
    body = body_of(model, base_url, **options)
    assert has_schema(body) is sent
    # The same words in every turn: for the cache of the prompt's beginning, and for transformers' server (5.24.0),
    # which leaves a response_format out.
    assert '"degrees"' in words(body)


@pytest.mark.parametrize(
    ("model", "base_url"),
    [
        ("openai:gpt-6-sol", None),
        ("openai-chat:gpt-6-sol", None),
        ("openai-chat:gpt-6-sol", OWN),
        ("openai-chat:anthropic/claude-opus-5-5", OWN),
        ("openrouter:google/gemini-3-pro", None),
        ("anthropic:claude-opus-5-5", None),
        ("anthropic:claude-opus-5-5", OWN),
    ],
)
def test_elsewhere_tools_and_schema_go_together(model: str, base_url: str | None) -> None:
    assert has_schema(body_of(model, base_url, tools=[TOOL]))


@pytest.mark.parametrize("model", ["vllm:m", "openresponses:m", "openai:gpt-6-sol"])
def test_a_strict_tool_is_strict(model: str) -> None:
    tool = ToolSpec("get_weather", parameters=CITY, options=ToolOptions(strict=True))
    (sent,) = body_of(model, tools=[tool])["tools"]
    assert (sent.get("function") or sent)["strict"] is True
