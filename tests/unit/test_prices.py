"""What a turn cost: by the list, or unknown; never 0 for what is not known."""

from __future__ import annotations

import sys

import pytest

from everturn import prices
from everturn.models import Model
from everturn.providers.catalog import PROVIDERS
from everturn.records import Usage

SPENT = Usage(input_tokens=1_000, output_tokens=100, cached_tokens=400)


@pytest.mark.parametrize(
    "model",
    [
        "openai:gpt-5.5",
        "openai-chat:gpt-5.5",
        "azure:gpt-5",
        "anthropic:claude-sonnet-5",
        "google:gemini-3-pro-preview",
        "xai:grok-4",
        "groq:llama-3.3-70b-versatile",
        "mistral:mistral-large-latest",
        "deepseek:deepseek-chat",
        "moonshot:kimi-k2.6",
        "openrouter:openai/gpt-5",
        "huggingface:openai/gpt-oss-120b:groq",
    ],
)
def test_a_listed_model_has_a_price(model: str) -> None:
    cost = prices.cost_usd(Model(model), SPENT)
    assert cost is not None
    assert 0 < cost < 0.1


@pytest.mark.parametrize(
    "model",
    [
        Model("openai:no-such-model"),
        Model("ollama:qwen3"),
        Model("vllm:qwen3"),
        Model("scripted:demo"),
        Model("huggingface:openai/gpt-oss-120b"),
        Model("huggingface:openai/gpt-oss-120b:nobody"),
        Model("openai-chat:gpt-5.5", base_url="http://localhost:8000/v1"),
    ],
)
def test_an_unknown_price_is_none_and_not_zero(model: Model) -> None:
    assert prices.cost_usd(model, SPENT) is None


def test_every_provider_has_a_price_list_or_is_known_to_have_none() -> None:
    assert PROVIDERS.keys() - prices._PRICED_AS.keys() == {"ollama", "vllm", "openresponses", "scripted"}


def test_cached_tokens_are_cheaper_and_counts_that_contradict_each_other_fail_nothing() -> None:
    model = Model("openai:gpt-5.5")
    cached, fresh = (prices.cost_usd(model, Usage(input_tokens=1_000, cached_tokens=count)) for count in (1_000, 0))
    assert cached is not None
    assert fresh is not None
    assert cached < fresh
    assert prices.cost_usd(model, Usage(input_tokens=1, cached_tokens=1_000)) is None


def test_without_the_list_no_price_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    prices._price_function.cache_clear()
    try:
        assert prices.cost_usd(Model("openai:gpt-5.5"), SPENT) is None
    finally:
        monkeypatch.undo()
        prices._price_function.cache_clear()
    assert prices.cost_usd(Model("openai:gpt-5.5"), SPENT) is not None
