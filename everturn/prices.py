"""What a model turn cost, by the price list of genai-prices (the extra `everturn[prices]`).

A price that is not known is None and never 0: of a local model, of a model that the list does not have, of a server
of one's own behind `base_url`, and of everything if the list is not installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from everturn.models import Model
from everturn.records import Usage

_PRICED_AS = {
    "openai": "openai",
    "openai-chat": "openai",
    "azure": "azure",
    "anthropic": "anthropic",
    "google": "google",
    "xai": "x-ai",
    "groq": "groq",
    "mistral": "mistral",
    "deepseek": "deepseek",
    "moonshot": "moonshotai",
    "openrouter": "openrouter",
    "huggingface": "huggingface",
}
"""The list's name for each of our providers. A provider that is not here has no price: ollama, vllm, scripted."""

_ANYBODYS = frozenset({"openai-chat"})
"""Providers whose models are anybody's at another address, so their price is not known. For other providers, another
address is a proxy, with the provider's own prices."""


def cost_usd(model: Model, usage: Usage) -> float | None:
    """What `usage` cost, in US dollars at today's prices; None if the price is not known."""
    listed, name = _PRICED_AS.get(model.provider), model.model
    if listed is None or (model.base_url and model.provider in _ANYBODYS):
        return None
    if model.provider == "huggingface":  # its router serves others' models: MODEL:SERVER
        name, colon, server = name.rpartition(":")
        if not colon:
            return None
        listed = f"huggingface_{server}"
    price = _price()
    return price(name, listed, usage) if price else None


def unpriced(models: Iterable[Model]) -> list[str]:
    """The names of those whose price is not known: a limit in US dollars can't hold them."""
    some = Usage(input_tokens=1000, output_tokens=1000)
    return [model.name for model in models if cost_usd(model, some) is None]


@cache
def _price() -> Callable[[str, str, Usage], float | None] | None:
    try:
        import genai_prices
    except ImportError:
        return None

    def price(name: str, listed: str, usage: Usage) -> float | None:
        counted: dict[str, Any] = {
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            # Left out if there are none, for the list does not price every kind for every model.
            **({"cache_read_tokens": usage.cached_tokens} if usage.cached_tokens else {}),
            **({"cache_write_tokens": usage.cache_write_tokens} if usage.cache_write_tokens else {}),
        }
        try:
            found = genai_prices.calc_price(genai_prices.Usage(**counted), name, provider_id=listed)
        except Exception:  # noqa: BLE001 - unknown models, and counts that contradict each other: no price fails a turn
            return None
        return float(found.total_price)

    return price
