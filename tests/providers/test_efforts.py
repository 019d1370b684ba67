"""How hard a model is asked to think: a level that it has, or none at all."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from everturn.models import Model, ModelSettings
from everturn.providers.base import Request
from everturn.providers.catalog import row_of
from everturn.providers.efforts import nearest_effort
from everturn.providers.http import PROTOCOLS
from everturn.records import Message
from everturn.tools.server_tools import UnsupportedParameter

ALL = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


def asked(model: str, effort: str) -> str | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return nearest_effort(Model(model), effort)


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
        ("xai:grok-3-mini", "low low low high high high high"),
        ("xai:grok-4.3", "none low low medium high high high"),
        ("xai:grok-4.5", "low low low medium high high high"),
        ("groq:openai/gpt-oss-120b", "low low low medium high high high"),
        ("groq:qwen/qwen3-32b", "none default default default default default default"),
        ("mistral:mistral-small-latest", "none high high high high high high"),
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
    ["openai:gpt-4.1", "openai-chat:gpt-5.2-chat-latest", "xai:grok-4", "xai:grok-4.20-0309-reasoning", "groq:llama-3"],
)
def test_a_model_without_efforts_is_asked_without_one_and_says_so(model: str) -> None:
    with pytest.warns(UnsupportedParameter, match="reasoning_effort"):
        assert nearest_effort(Model(model), "low") is None


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
        ("anthropic:claude-opus-4-6", {"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}}),
    ],
)
def test_every_protocol_sends_it_in_its_own_field(model: str, sent: dict[str, Any]) -> None:
    settings = ModelSettings(reasoning_effort="xhigh")
    request = Request(model=Model(model), messages=[Message.user("?")], settings=settings)
    body = PROTOCOLS[row_of(request.model.provider).protocol].encode(request)[1]
    fields = {"reasoning_effort", "reasoning", "thinking", "output_config", "generationConfig"}
    assert {name: body[name] for name in body.keys() & fields} == sent
