"""How many tokens a provider's limits count for a call: on average, of calls that have reported theirs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from everturn.providers.rate_permits import Unit
from everturn.records import Usage

FIRST: Final[dict[Unit, float]] = {"requests": 1.0, "tokens": 1_000.0, "input_tokens": 1_000.0, "output_tokens": 250.0}
"""Assumed until calls have reported theirs."""

OF_LAST: Final = 8


@dataclass
class TokensOfCalls:
    _average: dict[Unit, float] = field(default_factory=lambda: {**FIRST})
    _counted: set[Unit] = field(default_factory=set)
    """Units of which the average is measured, and not assumed."""

    @property
    def has_reports(self) -> bool:
        """Some call has reported its tokens."""
        return "tokens" in self._counted

    def tokens_needed(self, unit: Unit) -> float:
        """What the next call takes of a limit."""
        return self._average[unit]

    def add_usage(self, usage: Usage) -> None:
        """One call used this. Providers that limit input by itself leave out what they read from their cache."""
        self._count_unit("tokens", usage.total_tokens)
        self._count_unit("input_tokens", usage.input_tokens - usage.cached_tokens)
        self._count_unit("output_tokens", usage.output_tokens)

    def expect_tokens(self, tokens: int) -> None:
        """Before any call has reported: the next one will use about so many in all."""
        self._average["tokens"] = max(1.0, float(tokens))

    def _count_unit(self, unit: Unit, tokens: int) -> None:
        if tokens <= 0:
            return
        if unit in self._counted:
            self._average[unit] += (tokens - self._average[unit]) / OF_LAST
        else:  # what was only assumed has no part in it
            self._counted.add(unit)
            self._average[unit] = float(tokens)
