"""A worker's share of a limit that other workers share, and whose 429s hold calls for long.

A 429 says that the sum was too high, and not whose share. So a worker remembers its share: a 429 lowers the rate for
some seconds, and the share only a little. All feel for the limit slowly at first, so that they meet it at about the
same rate.

If a hold is short, a refusal costs little, and being quick counts more: then `rate_limiter` goes without this.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LONG_HOLD_SECONDS: Final = 2.0
"""A limit whose first 429 holds calls for longer is felt for with care."""

FELT_GROWTH: Final = 0.03
FELT_SECONDS: Final = 30.0
MOST_FELT_GROWTH: Final = 1.0
"""While workers feel for the limit, each grows by so much a second, and twice as fast after so many seconds without a
429, with the fourth power of the time."""
FEW_CALLS: Final = 6
"""A 429 before so many accepted calls does not end that search: the others' first calls had emptied the bucket."""
FIRST_CUT: Final = 0.3
FIRST_CUT_EACH: Final = 0.025
MOST_FIRST_CUT: Final = 0.5
"""The more workers share the limit, the further it is passed before all of them have noticed."""

CUT: Final = 0.1
CUT_AGAIN: Final = 0.05
SAME_EXCESS_SECONDS: Final = 10.0
"""429s within this time come of the same excess, so the later ones lower the share less."""
BRIEF_CUT: Final = 0.1
LEAST_OF_PART: Final = 0.7
BACK_SECONDS: Final = 5.0
"""The time in which a worker comes back to its share."""
GROWTH: Final = 0.002
"""Per second, of all workers together."""


def felt_rate(rate: float, seconds: float, *, quiet: float) -> float:
    """The rate after so many more seconds of feeling, in which no 429 came for so long."""
    return float(rate * (1 + min(FELT_GROWTH * (1 + (quiet / FELT_SECONDS) ** 4), MOST_FELT_GROWTH)) ** seconds)


@dataclass(slots=True)
class WorkerShare:
    """In calls a second, like each rate here."""

    rate: float
    cut_at: float

    @classmethod
    def from_search(cls, rate: float, now: float, *, workers: int) -> WorkerShare:
        """After the 429 that ends the search, at this rate."""
        return cls(rate * (1 - min(FIRST_CUT + FIRST_CUT_EACH * workers, MOST_FIRST_CUT)), now)

    @property
    def rate_below(self) -> float:
        """The rate right after a 429."""
        return self.rate * (1 - BRIEF_CUT)

    def grow_rate(self, rate: float, seconds: float, *, quiet: float, workers: int) -> float:
        """The rate after so many more seconds, on its way back to the share, which grows, too. `quiet`: for how long no
        429 came, as in `steady`."""
        self.rate *= 1 + GROWTH / workers * (1 + quiet**2) * seconds
        return rate + (self.rate - rate) * min(1.0, seconds / BACK_SECONDS)

    def cut_rate(self, rate: float, now: float) -> float:
        """The rate after a 429."""
        self.rate *= 1 - (CUT_AGAIN if now - self.cut_at <= SAME_EXCESS_SECONDS else CUT)
        self.cut_at = now
        return max(min(rate, self.rate) * (1 - BRIEF_CUT), self.rate * LEAST_OF_PART)
