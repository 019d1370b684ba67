"""Cuts of a rate that are undone: a provider may also refuse a few calls at any rate.

A 429 that comes soon after a cut, though nearly all calls between were accepted, has another cause than the rate. So
have several cuts after which 429s came as before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

NEEDLESS_SECONDS: Final = 25.0
NEEDLESS_CALLS: Final = 20
NEEDLESS_BELOW: Final = 0.95
NEEDLESS_GROWTH: Final = 1.6
"""If the last cut was within so many seconds, so many calls in a row were accepted after it, and the rate is still
below this share of what it was before, a 429 does not come of the rate: it was cut for nothing, and is raised."""

VAIN_CUTS: Final = 3
VAIN_CALLS: Final = 5
VAIN_GROWTH: Final = 1.8
"""So many cuts in vain, each followed by another 429 although the rate had not grown since and so many calls in a row
were accepted: they are all undone, and the rate is raised. Who was above a limit by as little would be below it by
then."""

MOST_REFUSED: Final = 0.4
REFUSED_OF: Final = 16
"""If more than this share of about the last 16 calls was refused, the rate is too high, whatever was accepted between:
who sends forty calls at once to a provider that takes five has five accepted before each 429."""


@dataclass
class UndoneCuts:
    """What came of the last cuts. All rates are in calls a second."""

    before_cut: float = 0.0
    """The rate before the last cut."""
    _before_all: float = 0.0
    """The rate before the first of the cuts since it last grew."""
    _vain: int = 0
    """Of these, how many changed nothing: a 429 came again, though several calls were accepted between."""
    in_a_row: int = 0
    """Calls that were accepted since the last 429."""
    _refused: float = 0.0
    """The share of the last calls that were refused."""

    @property
    def mostly_refused(self) -> bool:
        return self._refused > MOST_REFUSED

    def accepted(self) -> None:
        self.in_a_row += 1
        self._refused -= self._refused / REFUSED_OF

    def refused(self) -> None:
        self.in_a_row = 0
        self._refused += (1 - self._refused) / REFUSED_OF

    def count(self, rate: float, *, cut_before: bool) -> None:
        """To be called for each 429, before the rate is cut. `cut_before`: it was, and has been learned."""
        if not cut_before or rate > self.before_cut * NEEDLESS_BELOW:
            self._before_all, self._vain = rate, 0  # it has grown since, so it may be the limit
        elif self.in_a_row >= VAIN_CALLS:
            self._vain += 1

    def better(self, rate: float, *, since_cut: float | None) -> float | None:
        """The rate to go on with, if the cuts were for nothing; None if the rate is to be cut once more. `since_cut`:
        seconds since the last cut of a rate that has been learned; None if there was none."""
        if self.mostly_refused:
            return None
        if (
            since_cut is not None
            and since_cut < NEEDLESS_SECONDS
            and self.in_a_row >= NEEDLESS_CALLS
            and rate <= self.before_cut * NEEDLESS_BELOW
        ):
            return self.before_cut * NEEDLESS_GROWTH
        if self._vain >= VAIN_CUTS:
            self.before_cut = self._before_all * VAIN_GROWTH
            return self.before_cut
        return None

    def raised(self) -> None:
        """The rate was raised."""
        self._vain = 0
