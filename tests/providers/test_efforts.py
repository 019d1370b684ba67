"""How hard a model is asked to think: a level that it has, or none at all."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from everturn.models import Model, ModelSettings
from everturn.providers.base import Request
from everturn.providers.catalog import row_of
from everturn.providers.efforts import nearest_effort
from everturn.providers.http import protocol_by_name
from everturn.records import Message
from everturn.tools.server_tools import UnsupportedParameter

ALL = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


def asked(model: str, effort: str) -> str | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return nearest_effort(Model(model), effort)


def encoded(model: str, **settings: Any) -> dict[str, Any]:
    request = Request(model=Model(model), messages=[Message.user("?")], settings=ModelSettings(**settings))
    return protocol_by_name(row_of(request.model.provider).protocol).encode(request)[1]


@pytest.mark.parametrize(
    ("model", "levels"),
    [
        # none, minimal, low, medium, high, xhigh, max
        ("openai:o4-mini", "low low low medium high high high"),
        ("openai-chat:o3-2025-04-16", "low low low medium high high high"),
        ("openai:gpt-5", "minimal minimal low medium high high high"),
        ("openai:gpt-5-mini-2025-08-07", "minimal minimal low medium high high high"),
        ("openai:gpt-5-codex", "low low low medium high high high"),
        ("openai:gpt-5-pro", "high high high high high high high"),
        ("openai:gpt-5.1", "none low low medium high high high"),
        ("azure:gpt-5.1", "none low low medium high high high"),
        ("openai:gpt-5.1-codex-mini", "low low low medium high high high"),
        ("openai:gpt-5.1-codex-max", "low low low medium high xhigh xhigh"),
        ("openai:gpt-5.2-pro", "medium medium medium medium high xhigh xhigh"),
        ("openai:gpt-5.5", "none low low medium high xhigh xhigh"),
        ("openai:ft:gpt-5.5:acme", "none low low medium high xhigh xhigh"),
        ("openai:gpt-5.6-terra", "none low low medium high xhigh max"),
        ("google:gemini-3-pro-preview", "low low low high high high high"),
        ("google:gemini-3.1-pro-preview", "low low low medium high high high"),
        ("google:models/gemini-3-flash-preview", "minimal minimal low medium high high high"),
        ("google:gemini-3.8-flash", "low low low medium high high high"),
        ("google:gemini-3.8-flash-lite", "minimal minimal low medium high high high"),
        ("google:gemini-flash-latest", "low low low medium high high high"),
        ("google:gemini-3.1-flash-image-preview", "minimal minimal minimal high high high high"),
        ("google:gemini-4-argon", "low low low medium high high high"),
        ("google:gemini-4-carbon", "low low low medium high high high"),
        ("openai:gpt-5.2-chat-latest", "medium medium medium medium medium medium medium"),
        ("openai:gpt-6-astra", "low low low medium high xhigh max"),
        ("openai:gpt-6.1-sol", "low low low medium high xhigh max"),
        ("openai:gpt-6.2-sol", "low low low medium high xhigh max"),
        ("openai:gpt-6-sol", "none low low medium high xhigh max"),
        ("openai:gpt-6.1-terra", "none low low medium high xhigh max"),
        ("openai-chat:gpt-6-sol", "none low low medium high xhigh xhigh"),  # Chat Completions refuses max
        ("xai:grok-3-mini", "none low low high high high high"),
        ("xai:grok-4-0709", "none low low medium high high high"),  # answered by Grok 4.3
        ("xai:grok-4.6", "low low low medium high high high"),
        ("xai:grok-4.7", "low low low medium high xhigh xhigh"),
        ("xai:grok-4.3", "none low low medium high high high"),
        ("xai:grok-4.5", "low low low medium high high high"),
        ("groq:openai/gpt-oss-120b", "low low low medium high high high"),
        ("groq:qwen/qwen3-32b", "none default default default default default default"),
        ("groq:qwen/qwen3.8-27b", "none low low medium high high high"),
        ("mistral:mistral-small-latest", "none high high high high high high"),
        ("mistral:mistral-large-4", "none low low medium high high high"),
        ("mistral:devstral-latest", "none high high high high high high"),
        ("mistral:magistral-medium-latest", "none high high high high high high"),
        ("mistral:zai-glm-5-3", "low low low high high max max"),
        ("huggingface:zai-org/GLM-5.3", "low low low high high max max"),
        ("moonshot:kimi-k3", "low low low high high max max"),
        ("deepseek:deepseek-reasoner", "low low low high high max max"),
        ("ollama:qwen3", "none low low medium high high high"),
        # Of names that we do not know, what was asked for.
        ("openrouter:openai/o4-mini", " ".join(ALL)),
        ("openai-chat:demo", " ".join(ALL)),
    ],
)
def test_an_effort_is_the_nearest_that_the_model_has(model: str, levels: str) -> None:
    assert [asked(model, effort) for effort in ALL] == levels.split()


@pytest.mark.parametrize(
    "model",
    [
        "openai:gpt-4.1",
        "openai-chat:gpt-5-chat-latest",
        "mistral:mistral-large-latest",
        "xai:grok-4",
        "xai:grok-4.20-0309-reasoning",
        "groq:llama-3",
    ],
)
def test_a_model_without_efforts_is_asked_without_one_and_says_so(model: str) -> None:
    with pytest.warns(UnsupportedParameter, match="reasoning_effort"):
        assert nearest_effort(Model(model), "low") is None


@pytest.mark.parametrize(
    ("model", "sent"),
    [
        ("deepseek:deepseek-v4-pro", {"thinking": {"type": "disabled"}}),
        ("moonshot:kimi-k2.6", {"thinking": {"type": "disabled"}}),
        ("moonshot:kimi-k3", {"reasoning_effort": "low"}),  # it can't stop thinking, and refuses both other ways
        ("moonshot:kimi-k2.7-code", {}),
        ("deepseek:deepseek-reasoner", {"reasoning_effort": "low"}),
        ("groq:qwen/qwen3.8-27b", {"reasoning_effort": "none"}),
        ("openai-chat:gpt-6-sol", {"reasoning_effort": "none"}),
    ],
)
@pytest.mark.filterwarnings("ignore::everturn.tools.server_tools.UnsupportedParameter")
def test_how_a_chat_model_is_told_not_to_think(model: str, sent: dict[str, Any]) -> None:
    body = encoded(model, reasoning_effort="none")
    assert {name: body[name] for name in body.keys() & {"thinking", "reasoning_effort"}} == sent


@pytest.mark.parametrize(
    ("model", "effort", "taken"),
    [
        *((f"{provider}:gpt-6-sol", "high", False) for provider in ("openai", "openai-chat", "azure")),
        ("openai:gpt-6-sol", None, False),  # it thinks if nobody says that it should not
        ("openai:gpt-6-sol", "none", True),
        ("openai:gpt-6-astra", "none", False),  # it becomes low
        ("openai:gpt-5", None, False),
        ("openai:o4-mini", None, False),
        ("openai:gpt-5.5", None, False),
        ("openai:gpt-5.4", None, True),
        ("openai:gpt-5.4", "low", False),
        ("openai:gpt-4.1", None, True),
        ("openai-chat:demo", "high", True),
        ("google:gemini-4-argon", "high", True),
        ("xai:grok-4.7", "high", True),
        ("groq:openai/gpt-oss-120b", "high", True),
        ("anthropic:claude-opus-4-6", None, True),
        ("anthropic:claude-opus-4-6", "none", True),
        ("anthropic:claude-sonnet-5-5", "none", False),
    ],
)
@pytest.mark.filterwarnings("ignore::everturn.tools.server_tools.UnsupportedParameter")
def test_a_temperature_goes_only_to_a_model_that_takes_it_beside_its_effort(
    model: str, effort: str | None, taken: bool
) -> None:
    body = encoded(model, reasoning_effort=effort, temperature=0.5)
    assert ("temperature" in (body | body.get("generationConfig", {}))) is taken


def test_a_temperature_that_is_left_out_is_said() -> None:
    with pytest.warns(UnsupportedParameter, match="temperature=0.5 while it reasons"):
        encoded("openai:gpt-6-sol", reasoning_effort="high", temperature=0.5)


def test_thinking_that_can_not_be_turned_off_is_said() -> None:
    with pytest.warns(UnsupportedParameter, match="lowest effort"):
        assert nearest_effort(Model("openai:o4-mini"), "none") == "low"


@pytest.mark.filterwarnings("ignore::everturn.tools.server_tools.UnsupportedParameter")
@pytest.mark.parametrize(
    ("model", "sent"),
    [
        ("openai-chat:o4-mini", {"reasoning_effort": "high"}),
        ("openai:o4-mini", {"reasoning": {"effort": "high"}}),
        ("xai:grok-4", {}),
        ("deepseek:deepseek-v4-pro", {"reasoning_effort": "max"}),
        (
            "google:gemini-3-pro-preview",
            {"generationConfig": {"thinkingConfig": {"thinkingLevel": "HIGH", "includeThoughts": True}}},
        ),
        ("google:gemini-3-pro-image-preview", {}),
        ("google:gemini-2.5-flash-image", {}),
        ("anthropic:claude-opus-4-6", {"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}}),
    ],
)
def test_every_protocol_sends_it_in_its_own_field(model: str, sent: dict[str, Any]) -> None:
    body = encoded(model, reasoning_effort="xhigh")
    fields = {"reasoning_effort", "reasoning", "thinking", "output_config", "generationConfig"}
    assert {name: body[name] for name in body.keys() & fields} == sent
