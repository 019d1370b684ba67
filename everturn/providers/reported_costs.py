"""What a provider says that a reply cost: with its tools and discounts, and so nearer to the bill than any price list.

OpenRouter's `usage.cost` is in US dollars (openrouter.ai/docs, usage accounting, 2026-11); with a key of one's own,
what its provider charges comes beside it. xAI's `cost_in_usd_ticks` are 10,000,000,000 to the dollar (docs.x.ai,
2026-11; the recorded 1,399,000 ticks are what grok-3-mini's prices make of its tokens).
"""

from __future__ import annotations

from math import isfinite
from typing import Any, Final

from everturn.models import Model
from everturn.providers.catalog import row_of
from everturn.providers.json_values import a_dict

TICKS_PER_USD: Final = 10_000_000_000


def reported_cost_usd(usage: dict[str, Any], model: Model) -> float | None:
    """In US dollars; None if the provider does not say it."""
    if not row_of(model.provider).reports_cost:
        return None
    if ticks := _read_amount(usage.get("cost_in_usd_ticks")):
        return ticks / TICKS_PER_USD
    cost = _read_amount(usage.get("cost"))
    if cost is None or usage.get("is_byok") is not True:
        return cost
    upstream = _read_amount(a_dict(usage.get("cost_details")).get("upstream_inference_cost"))
    if upstream is None:
        return None
    return cost + upstream


def _read_amount(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not isfinite(value) or value < 0:
        return None
    return float(value)
