"""What a rate limiter gives out, and what it is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Unit = Literal["requests", "tokens", "input_tokens", "output_tokens"]


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a provider's headers say about one of its limits."""

    unit: Unit
    limit: float
    remaining: float
    reset: float | None = None
    """Seconds until the whole limit is available again."""

    @property
    def refill_rate(self) -> float:
        """What may be used a second from now on: what comes back, or what is left until the reset, if that is more."""
        if not self.reset:
            return self.limit / 60
        return max(self.limit - self.remaining, self.remaining) / self.reset


@dataclass(eq=False, slots=True)
class Permit:
    """Allows one call. The caller reports the call's outcome with it."""

    sent: float
    early: bool
    """The call goes out during a hold, to test whether the hold is still needed."""
    open: bool = True
    """No outcome was reported yet."""
    counted: bool = False
    """It counts as accepted."""
    counted_at: float = 0.0
    """Since when."""
    refusing_since: float | None = None
    """Since when the provider had refused all calls until then."""
    answered: bool = False
    """An answer showed that the call was accepted, and not only the time that passed."""
