"""429s that do not come of the rate: some providers refuse a few calls at any rate, while they are busy.

A limit is not met again soon after a cut of the rate. So if a cut changes nothing (a 429 comes again, though the rate
has not grown since and calls were accepted between), noise is suspected, and one call goes out at once: who refused for
lack of room has none a moment later. If it is accepted, the cuts are undone, and until the share of refused calls
rises, a 429 holds its own call only. It rises if there is a limit, too: the further the rate is above it, the more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

VAIN_CUTS: Final = 1
"""So many cuts in vain are a reason to test for noise."""
VAIN_CALLS: Final = 2
MOST_VAIN_CUTS: Final = 8
"""What it takes after suspicions that were wrong, each of which doubles it."""
GROWN_BELOW: Final = 0.95
"""Of the rate before a cut: a rate above it has grown since, so a 429 may come of it."""
DEEP: Final = 0.5
"""Cuts to less than this share of the rate before them were too many, if nothing is refused any more."""
DEEP_CALLS: Final = 4
GROWTH: Final = 1.5
"""Noise once shown, the rate goes on so far above what it was before the cuts."""

SHARE_OF: Final = 24
"""The share of refused calls is measured over about so many."""
MOST_NOISE: Final = 0.25
RISEN_BY: Final = 0.05
RISEN_TIMES: Final = 1.5
"""The share of refused calls has risen if it is so many times what chance adds above what it was, and so much more."""
QUIET_SECONDS: Final = 60.0
"""After so long without a 429, the noise is over."""

MOST_REFUSED: Final = 0.4
REFUSED_OF: Final = 16
"""If more than this share of about the last 16 calls was refused, the rate is too high, whatever was accepted between:
who sends forty calls at once to a provider that takes five has five accepted before each 429."""


@dataclass
class RefusalNoise:
    """What came of the last calls. Rates are in calls a second, times in seconds."""

    level: float | None = None
    """The share of calls that are refused at any rate; None while nothing shows that there is noise."""
    before_cut: float = 0.0
    """The rate before the last cut."""
    in_a_row: int = 0
    """Calls that were accepted since the last 429."""
    _before_cuts: float = 0.0
    """The rate before the first of the cuts since it last grew."""
    _vain: int = 0
    _needed: int = VAIN_CUTS
    """Cuts in vain until the next test."""
    _share: float = 0.0
    _recent: float = 0.0
    _refused_at: float = 0.0

    @property
    def mostly_refused(self) -> bool:
        return self._recent > MOST_REFUSED

    def is_far_below(self, rate: float) -> bool:
        """Whether the rate was cut too far: nothing is refused any more, and it is far below what it was."""
        return self.in_a_row >= DEEP_CALLS and rate < DEEP * self._before_cuts

    def record_accepted(self) -> None:
        self.in_a_row += 1
        self._count_call(0.0)

    def record_refused(self, now: float) -> None:
        self.in_a_row = 0
        self._refused_at = now
        self._count_call(1.0)

    def explains_refusal(self, now: float) -> bool:
        """Whether a 429 is noise, as far as that is known: then the rate stays. To be called before it is counted."""
        if self.level is None:
            return False
        chance = (self.level * (1 - self.level) / (2 * SHARE_OF)) ** 0.5
        risen = self._share > self.level + RISEN_BY + RISEN_TIMES * chance
        if risen or self.mostly_refused or now - self._refused_at > QUIET_SECONDS:
            self.level = None
            self.reject_noise()
            return False
        self.level += (min(self._share, MOST_NOISE) - self.level) / SHARE_OF
        return True

    def is_suspected(self, rate: float, *, learned: bool) -> bool:
        """Whether the cut that is due may be in vain, too. `learned`: the rate was found by 429s before, and not only
        begun with."""
        if not learned or rate > self.before_cut * GROWN_BELOW:
            self._before_cuts = rate
            self._vain = 0
        elif self.in_a_row >= VAIN_CALLS:
            self._vain += 1
        return self._vain >= self._needed and not self.mostly_refused

    def confirm_noise(self) -> float:
        """The call that tested it was accepted: the rate to go on with."""
        self.level = min(self._share, MOST_NOISE)
        self._vain = 0
        return self._before_cuts * GROWTH

    def reject_noise(self) -> None:
        """The call that tested it was refused, or there are more refusals than the noise had."""
        self._vain = 0
        self._needed = min(2 * self._needed, MOST_VAIN_CUTS)

    def _count_call(self, refused: float) -> None:
        self._share += (refused - self._share) / SHARE_OF
        self._recent += (refused - self._recent) / REFUSED_OF
