"""What Temporal Cloud takes, in US dollars."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LISTED: Final = "Temporal Cloud's list of 2026-11-22, pay as you go, first tier: https://docs.temporal.io/cloud/pricing"


@dataclass(frozen=True, kw_only=True)
class TemporalPrices:
    """The list's prices, unless others are given. Larger accounts pay less for actions; a plan's share comes on top."""

    per_million_actions: float = 50.0
    active_gb_hour: float = 0.042
    """For storage, while a run is open."""
    retained_gb_hour: float = 0.00105
    """And after that, for as long as the namespace keeps it."""
    retention_days: float = 30.0

    @property
    def source(self) -> str:
        """Where they come from, in words."""
        return LISTED if self == TemporalPrices() else "as given"
