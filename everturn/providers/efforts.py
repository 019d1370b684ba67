"""How hard a model is asked to think: the nearest level that it takes, by the table in `vendor_models/abilities.py`."""

from __future__ import annotations

from typing import Final

from everturn.models import Model
from everturn.providers.base import warn_unsupported
from everturn.vendor_models.abilities import abilities_of

_RANKS: Final = {"none": 0, "minimal": 1, "low": 2, "medium": 3, "default": 3, "high": 4, "xhigh": 5, "max": 6}


def nearest_effort(model: Model, effort: str) -> str | None:
    """The level to ask for: the model's nearest; if two are equally near, the higher. Only 'none' becomes 'none'.

    None, with a warning (UnsupportedParameter), if the model takes no effort at all.
    """
    levels = abilities_of(model).efforts
    if levels is None or effort in levels:
        return effort
    if not levels:
        warn_unsupported(model, f"reasoning_effort={effort!r}")
        return None
    if effort == "none":
        warn_unsupported(model, "reasoning_effort='none'", "It is asked for its lowest effort instead.")
    wanted = _RANKS[effort]
    thinking = [level for level in levels if level != "none"]
    return min(thinking, key=lambda level: (abs(_RANKS[level] - wanted), -_RANKS[level]))


def temperature_beside(model: Model, temperature: float | None, effort: str | None) -> float | None:
    """The temperature to send beside this effort, if any; None, with a warning, if the model refuses it."""
    # 1 is the default, and the only temperature that OpenAI's models take while they reason.
    if temperature in {None, 1} or abilities_of(model).takes_temperature(effort):
        return temperature
    beside = "" if abilities_of(model).sampling == "never" else " while it reasons"
    warn_unsupported(model, f"temperature={temperature}{beside}")
    return None
