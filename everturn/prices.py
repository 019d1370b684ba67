"""What a model turn cost: as its provider says, else by the price list of genai-prices (the extra `everturn[prices]`).

A price that is not known is None and never 0: of a local model, of a model that the list does not have, of a server
of one's own behind `base_url`, and of everything if the list is not installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

from everturn.models import PROVIDERS, Model, ModelSettings
from everturn.records import Reply, Usage, cost_with
from everturn.vendor_models import plugins

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


_TIERS: Mapping[tuple[str, str], float] = {("google", "flex"): 0.5, ("google", "priority"): 1.8}
"""What a tier costs, times the price, for models of which the list has no price for it. Source: its prices of Gemini's
speech models, and ai.google.dev/gemini-api/docs/pricing (2026-11)."""
_ONLY_THERE = 1.1
"""Times the price if Claude has to run in one country: `inference_geo` "us" (Anthropic, data residency, 2026)."""
_EXTRAS = {
    "cache_write_1h_tokens": "cache_write_1h_tokens",
    "input_audio_tokens": "input_audio_tokens",
    "output_audio_tokens": "output_audio_tokens",
    "output_image_tokens": "output_image_tokens",
    "web_searches": "web_searches",
}
"""Counts of ours that the list prices for some models only, and its names for them."""


def cost_usd(model: Model, usage: Usage, *, details: Mapping[str, Any] | None = None) -> float | None:
    """What `usage` cost, in US dollars at today's prices; None if the price is not known. `details`: a reply's, which
    say in which tier it was served."""
    listed = _listed_as(model.provider)
    name = model.model
    if listed is None or (model.base_url and model.provider in _ANYBODYS):
        return None
    if model.provider == "huggingface":  # its router serves others' models: MODEL:SERVER
        name, colon, server = name.rpartition(":")
        if not colon:
            return None
        listed = f"huggingface_{server}"
    price = _price_function()
    if price is None:
        return None
    details = details or {}
    context = _price_context(details)
    cost = price(name, listed, usage, context)
    tier = context.get("service_tier", "")
    if cost is not None and (listed, tier) in _TIERS and cost == price(name, listed, usage, {}):
        cost *= _TIERS[listed, tier]
    if cost is not None and listed == "anthropic" and details.get("inference_geo") == "us":
        cost *= _ONLY_THERE
    return cost


def _listed_as(provider: str) -> str | None:
    """The price list's name for a provider, ours or a package's; None if it has none."""
    if provider in PROVIDERS:
        return _PRICED_AS.get(provider)
    return getattr(plugins.load_row(provider), "priced_as", "") or None


def cost_of_reply(model: Model, reply: Reply) -> float | None:
    """What a reply cost: what its provider says, else by the list, in its tier, and with what other models used for it
    at their prices. Pictures by a model that the list lacks are priced as the asked model's tokens."""
    if reply.cost_usd is not None:
        return reply.cost_usd
    total: float | None = 0.0
    own = reply.usage
    for part in reply.by_others:
        own = own.since(part.usage)
        other = model.model_copy(update={"name": f"{model.provider}:{part.model}"})
        cost = cost_usd(other, part.usage, details=reply.details)
        if cost is None and part.usage.output_image_tokens:
            # About as much, and better than none: a sum that is not known would hold no limit in US dollars any more.
            cost = cost_usd(model, part.usage, details=reply.details)
        total = cost_with(total, cost)
    return cost_with(total, cost_usd(model, own, details=reply.details))


def asked_tier(settings: ModelSettings) -> dict[str, Any]:
    """The details that a reply with these settings will likely have: for one that was cut short, and says nothing."""
    names = ("service_tier", "speed", "inference_geo")
    return {name: settings.extra[name] for name in names if isinstance(settings.extra.get(name), str)}


def _price_context(details: Mapping[str, Any]) -> dict[str, str]:
    """The tier in the list's words."""
    tier = str(details.get("service_tier") or "").lower()
    # Gemini: ON_DEMAND_FLEX and the like.
    tier = next((name for name in ("flex", "priority", "batch") if name in tier.replace("_", " ").split()), tier)
    context: dict[str, str] = {}
    if tier:
        context["service_tier"] = tier
    if tier == "batch":
        context["processing"] = "batch"
    if details.get("speed") == "fast":
        context["speed"] = "fast"
    return context


def unpriced(models: Iterable[Model]) -> list[str]:
    """The names of those whose price is not known: a limit in US dollars can't hold them."""
    some = Usage(input_tokens=1000, output_tokens=1000)
    return [model.name for model in models if cost_usd(model, some) is None]


@cache
def _price_function() -> Callable[[str, str, Usage, Mapping[str, str]], float | None] | None:
    try:
        import genai_prices
    except ImportError:
        return None

    def price(name: str, listed: str, usage: Usage, context: Mapping[str, str]) -> float | None:
        counted: dict[str, Any] = {
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
        }
        # Left out if there are none, for the list does not price every kind for every model.
        if usage.cached_tokens:
            counted["cache_read_tokens"] = usage.cached_tokens
        if usage.cache_write_tokens:
            counted["cache_write_tokens"] = usage.cache_write_tokens
        extras = {theirs: count for ours, theirs in _EXTRAS.items() if (count := getattr(usage, ours))}
        if usage.cached_tokens and usage.input_audio_tokens:  # the list wants to know how many are both, even if none
            extras["cache_audio_read_tokens"] = usage.cached_audio_tokens
        for tried in (counted | extras, counted) if extras else (counted,):
            try:
                calculated = genai_prices.calc_price(
                    genai_prices.Usage(**tried), name, provider_id=listed, price_context=context or None
                )
            except Exception:  # noqa: BLE001 - unknown models, and counts that contradict each other: no price fails a turn
                continue
            return float(calculated.total_price)
        return None

    return price
