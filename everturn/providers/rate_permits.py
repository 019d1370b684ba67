"""What a rate limiter gives out, and what it is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a provider's headers say about one of its limits."""

    unit: Literal["requests", "tokens"]
    limit: float
    remaining: float
    reset: float | None = None
    """Seconds until the whole limit is available again."""


@dataclass(eq=False, slots=True)
class Permit:
    """Allows one call. The caller reports the call's outcome with it."""

    sent: float
    early: bool
    """The call goes out during a hold, to test whether the hold is still needed."""
    open: bool = True
    """No outcome was reported yet."""
    taken: bool = False
    answered: bool = False
    """An answer showed that the call was accepted, and not only the time that passed."""
