"""When calls of one provider and key may go out: how a worker finds a limit that is not announced.

Pure: the caller passes the time, and the limiter sends nothing. Workers do not share what they learn (decision 0034):

- `open`: no limit was met. Unanswered calls are bounded; each accepted call makes room for one more.
- `feeling`: after the first 429, the rate starts low, and grows fast until the next 429.
- `closing_in`: then the rate is what the provider really accepted, less a margin, and grows slowly.
- `steady`: each 429 lowers the rate. Without one it grows a little; the longer none comes, the faster. A 429 that comes
  soon after a cut, though nearly all calls between were accepted, has another cause than the rate: the cut is undone.
  So are several cuts after which 429s came as before.

Workers that share a limit whose 429s hold calls for long do otherwise from `feeling` on: `limit_part`.

A 429's Retry-After holds all calls. Many ask for more than is needed, so one call is sent early. If it is accepted,
the hold ends, and the next early call comes sooner. If it is refused, later ones wait longer, up to the whole hold.

The numbers come from simulations: 1, 4 and 8 workers on a provider with a bucket of five calls, five a second.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, assert_never

from everturn.providers import limit_part
from everturn.providers.limit_part import Part
from everturn.providers.rate_permits import Allowance, Permit

Phase = Literal["open", "feeling", "closing_in", "steady"]

FIRST_WINDOW: Final = 1
FIRST_RATE: Final = 4.0
"""Calls a second, of all workers, at which the search starts if nothing better is known."""
FIRST_RATE_SHARED: Final = 1.15
"""FIRST_RATE is divided by this power of the number of workers: by more than their number, as all start at once."""
KNOWN_AFTER_SECONDS: Final = 5.0
"""Calls accepted before the first 429 show the rate only after this long."""

FEELING_GROWTH, FEELING_GROWTH_SHARED = 1.3, 1.15
"""Per second: of a worker alone, and of one that shares the limit, since the others grow meanwhile."""
CLOSING_GROWTH: Final = 1.1
CLOSING_STEP: Final = 0.2
"""Added to the rate each second, in calls a second, besides the growth."""
STEADY_GROWTH: Final = 0.002
QUIET_SECONDS: Final = 25.0
"""After this long without a 429 the growth doubles; it goes on with the square of the time."""
LONGEST_STEP_SECONDS: Final = 2.0

MARGIN, MARGIN_SHARED = 0.9, 0.7
"""The share of the accepted calls, alone and shared, to start from: the provider's bucket was full at first."""
CUT: Final = 0.15
LEAST_CUT_AT_FIRST: Final = 0.3
MOST_CUT_AT_FIRST: Final = 0.6
MOST_CUT: Final = 0.4
MEASURED_SECONDS: Final = 25.0
MANY_REFUSALS: Final = 3
MANY_CUT: Final = 0.3
"""So many 429s, with hardly an accepted call between them: the rate of workers that share a limit is far too high."""
FEW_AT_FIRST: Final = 4
FEW_CALLS: Final = 5
"""Fewer accepted calls than this do not show a rate."""
LEAST_RATE, MOST_RATE = 0.01, 1e6

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

FIRST_LOOK: Final = 0.1
"""The part of a hold after which one call is sent early."""
LEAST_LOOK: Final = 0.02
LOOK_SECONDS: Final = 2.0
"""The earliest time for that call, give or take a half."""
EARLIER, LATER, SPREAD = 1.3, 3.0, 0.5
LONGER_BY: Final = 1.25
"""A hold is lengthened at random, up to this factor: workers that were refused together come back one by one."""
OWN_HOLD_SECONDS: Final = 1.0
LONGEST_OWN_HOLD_SECONDS: Final = 30.0
"""Holds for when a provider does not say how long."""

SHORT: Final = 0.1
"""If only this share of a limit is left, the rate is lowered before a 429 comes."""
FIRST_TOKENS: Final = 1_000.0
"""Assumed tokens of a call, until calls have reported theirs."""


@dataclass
class RateLimiter:
    """All times are in seconds, by any clock that only goes forward."""

    workers: int = 1
    """How many workers share the limit, including this one."""
    rpm: float | None = None
    tpm: float | None = None
    """The limits of all workers together, if they are known."""
    uniform: Callable[[float, float], float] = random.uniform
    phase: Phase = "open"
    hold: float = 0.0
    """The time until which nothing goes out."""
    refusing_since: float | None = None
    """The time of the first 429 since a call was last accepted."""
    refused_calls: int = 0
    _rate: float = 0.0
    _window: int = FIRST_WINDOW
    _unanswered: int = 0
    _next: float = 0.0
    _look: float | None = None
    _looking: Permit | None = None
    _part: float = field(default_factory=lambda: FIRST_LOOK)
    _own_hold: float = OWN_HOLD_SECONDS
    _grown: float = 0.0
    _felt_since: float = 0.0
    _cut_at: float | None = None
    _rate_before_cut: float = 0.0
    """The rate before the last cut."""
    _rate_before_all: float = 0.0
    """The rate before the first of the cuts since it last grew."""
    _vain_cuts: int = 0
    """Of these, how many changed nothing: a 429 came again, though several calls were accepted between."""
    _taken_in_a_row: int = 0
    """Calls that were accepted since the last 429."""
    _taken: deque[float] = field(default_factory=deque)
    _tokens: float = FIRST_TOKENS
    _held_long: bool = False
    """The first 429 held calls for long."""
    _own: Part | None = None
    """This worker's part of a limit that others share."""
    _refused_in_a_row: int = 0
    """429s with at most one accepted call between them."""

    def share(self, workers: int) -> None:
        """Says how many workers share the limit. Who felt for it alone meanwhile goes on with its part."""
        if self.phase == "feeling" and self._held_long:
            self._rate = max(self._rate * self.workers / workers, LEAST_RATE)
        self.workers = workers

    @property
    def rate(self) -> float | None:
        """Calls a second of this worker; None while it knows no limit."""
        known = self._known_rate()
        if self.phase == "open":
            return known
        return self._rate if known is None else min(self._rate, known)

    # ------------------------------------------------------------ may one go?

    def when(self, now: float) -> float | None:
        """The time from which the next call may go; None: only after a running call is answered."""
        if now < self.hold:
            if self._looking:
                return None
            return self.hold if self._look is None else max(now, self._look)
        if self.phase == "open" and self._unanswered >= self._window:
            return None
        return now if self.rate is None else max(now, self._next)

    def send(self, now: float) -> Permit:
        """Records that a call goes out, at a time that `when` returned."""
        permit = Permit(now, early=now < self.hold)
        self._unanswered += 1
        if permit.early:
            self._looking = permit
            return permit
        self._grow(now)
        if rate := self.rate:
            self._next = max(now, self._next + 1 / rate) if self._next > now - 1 / rate else now + 1 / rate
        return permit

    # ------------------------------------------------------------ what came of it

    def accepted(self, permit: Permit, now: float) -> None:
        """The provider accepted the call. Reporting it twice changes nothing."""
        if permit.taken:
            return
        permit.taken = True
        self._close(permit)
        self.refusing_since, self._own_hold = None, OWN_HOLD_SECONDS
        self._taken_in_a_row += 1
        self._taken.append(now)
        while self._taken[0] < now - MEASURED_SECONDS:
            self._taken.popleft()
        if self.phase == "open":
            self._window += 1
            self._felt_since = self._taken[0]
        if self._looking is permit:
            self._looking = self._look = None
            self._part = max(self._part / EARLIER, LEAST_LOOK)
            self.hold = self._next = self._grown = now
            if self._takes_care:  # the early call took what had come back meanwhile
                self._next = now + 1 / self._rate

    def refused(self, permit: Permit | None, now: float, retry_after: float | None) -> None:
        """The call was answered with 429. `permit` is None if it went out without one."""
        self.refused_calls += 1
        early = permit is not None and self._looking is permit
        if permit is not None:
            self._close(permit)
        if early:
            self._looking = None
            self._part = min(1.0, self._part * LATER)
        elif permit is None or self._cut_at is None or permit.sent >= self._cut_at:  # else it was under way by then
            self._refused_in_a_row = self._refused_in_a_row + 1 if self._taken_in_a_row < 2 else 0
            self._count_vain_cuts()
            if self._needless(now):
                self._raise(self._rate_before_cut * NEEDLESS_GROWTH, now)
            elif self._vain_cuts >= VAIN_CUTS:
                self._rate_before_cut = self._rate_before_all * VAIN_GROWTH
                self._raise(self._rate_before_cut, now)
            else:
                self._rate_before_cut = self._rate
                self._cut(now, held=self._own_hold if retry_after is None else retry_after)
        self._taken_in_a_row = 0
        if self.refusing_since is None:
            self.refusing_since = now
        self._hold_for(now, retry_after)

    def over(self, permit: Permit) -> None:
        """The call ended, with any outcome."""
        self._close(permit)
        if self._looking is permit:  # it broke, and says nothing about the hold
            self._looking = self._look = None

    def used(self, tokens: int) -> None:
        """One call used this many tokens."""
        if tokens > 0:
            self._tokens += (tokens - self._tokens) / 8

    def told(self, allowances: Sequence[Allowance], now: float) -> None:
        """Takes in the headers of an answer; those of a refusal count too."""
        rooms: list[float] = []
        for one in allowances:
            need = 1.0 if one.unit == "requests" else self._tokens
            gone = one.limit - one.remaining
            filled = gone / one.reset if one.reset and gone > 0 else one.limit / 60
            if one.limit <= 0 or filled <= 0:
                continue
            rooms.append(one.remaining / need)
            if one.remaining < need:
                wait = (need - one.remaining) / filled
                self.hold = max(self.hold, now + (wait if one.reset is None else min(wait, one.reset)))
                self._next = max(self._next, self.hold)
            if one.remaining < max(2 * need, SHORT * one.limit):
                self._slow_down(filled / need / self.workers, now)
        if rooms and self.phase == "open":
            self._window = max(self._window, int(min(rooms) / 2 / self.workers))

    # ------------------------------------------------------------ underneath

    def _known_rate(self) -> float | None:
        rates = [self.rpm] if self.rpm else []
        rates += [self.tpm / self._tokens] if self.tpm else []
        return min(rates) / 60 / self.workers if rates else None

    def _close(self, permit: Permit) -> None:
        if permit.open:
            permit.open = False
            self._unanswered -= 1

    def _grow(self, now: float) -> None:
        """Raises the rate for the time since it last grew: a pause counts for LONGEST_STEP_SECONDS at most."""
        seconds, self._grown = min(now - self._grown, LONGEST_STEP_SECONDS), now
        if seconds <= 0:
            return
        match self.phase:
            case "open":
                return
            case "feeling" if self._takes_care:
                self._rate = limit_part.felt(self._rate, seconds, quiet=now - (self._cut_at or 0.0))
            case "feeling":
                self._rate *= (FEELING_GROWTH if self.workers == 1 else FEELING_GROWTH_SHARED) ** seconds
            case "closing_in" | "steady" if self._own:
                quiet = (now - (self._cut_at or 0.0)) / QUIET_SECONDS
                self._rate = self._own.grown(self._rate, seconds, quiet=quiet, workers=self.workers)
            case "closing_in":
                self._rate *= CLOSING_GROWTH ** (seconds / self.workers**2)
                self._rate += CLOSING_STEP * seconds / self.workers**2
            case "steady":
                quiet = (now - (self._cut_at or 0.0)) / QUIET_SECONDS
                self._rate *= 1 + STEADY_GROWTH / self.workers * (1 + quiet**2) * seconds
            case other:
                assert_never(other)
        known = self._known_rate()
        most = MOST_RATE if known is None else known
        self._rate = min(self._rate, most)
        if self._own:
            self._own.rate = min(self._own.rate, most)

    @property
    def _takes_care(self) -> bool:
        return self._own is not None or (self.phase == "feeling" and self._held_long and self.workers > 1)

    def _raise(self, rate: float, now: float) -> None:
        self._rate, self._cut_at, self._vain_cuts = rate, now, 0
        if self._own:
            self._own.rate = max(self._own.rate, rate)

    def _count_vain_cuts(self) -> None:
        """To be called for each 429, before the rate is cut."""
        if self._own:
            return
        if self.phase != "steady" or self._rate > self._rate_before_cut * NEEDLESS_BELOW:
            self._rate_before_all, self._vain_cuts = self._rate, 0  # it has grown since, so it may be the limit
        elif self._taken_in_a_row >= VAIN_CALLS:
            self._vain_cuts += 1

    def _needless(self, now: float) -> bool:
        """Whether the last cut was for nothing: a provider may also refuse a few calls at any rate."""
        return (
            self.phase == "steady"
            and self._cut_at is not None
            and now - self._cut_at < NEEDLESS_SECONDS
            and self._taken_in_a_row >= NEEDLESS_CALLS
            and self._rate <= self._rate_before_cut * NEEDLESS_BELOW
        )

    def _cut(self, now: float, *, held: float) -> None:
        """Lowers the rate after a 429 for a call that went out since the last cut, and that holds calls so long."""
        span = now - self._felt_since
        if self.workers > 1 and self._refused_in_a_row >= MANY_REFUSALS and self.phase != "open":
            self._rate *= 1 - MANY_CUT
            self._refused_in_a_row = 1
            if self._own:
                self._own.rate = max(self._own.rate * (1 - MANY_CUT), LEAST_RATE)
        elif self._takes_care:
            self._cut_with_care(now)
        elif self.phase != "open":
            self._cut_to_what_was_taken(now)
        elif (known := self._known_rate()) is not None:
            self._rate, self.phase = known * (1 - CUT), "steady"
        elif len(self._taken) >= FEW_CALLS and span >= KNOWN_AFTER_SECONDS:
            self._rate, self.phase = len(self._taken) / span * (1 - CUT), "closing_in"
        else:
            self._held_long = held > limit_part.LONG_HOLD_SECONDS
            shared = self.workers if self._held_long else self.workers**FIRST_RATE_SHARED
            self._rate, self.phase = FIRST_RATE / shared, "feeling"
            self._felt_since = now
            self._taken.clear()
        self._rate = max(self._rate, LEAST_RATE)
        self._cut_at = now

    def _cut_with_care(self, now: float) -> None:
        if self._own:
            self._rate, self.phase = self._own.cut(self._rate, now), "steady"
        elif len(self._taken) >= limit_part.FEW_CALLS:
            self._own = Part.found(self._rate, now, workers=self.workers)
            self._rate, self.phase = self._own.below, "closing_in"

    def _cut_to_what_was_taken(self, now: float) -> None:
        span = max(0.1, min(MEASURED_SECONDS, now - self._felt_since))
        while self._taken and self._taken[0] < now - span:
            self._taken.popleft()
        taken = len(self._taken) / span
        if self.phase != "feeling":
            if len(self._taken) >= FEW_CALLS:
                self.phase = "steady"
            self._rate = max(self._rate * (1 - MOST_CUT), min(self._rate * (1 - CUT), taken))
        elif len(self._taken) >= FEW_AT_FIRST or self.workers == 1:
            found = taken * (MARGIN if self.workers == 1 else MARGIN_SHARED)
            least, most = self._rate * (1 - MOST_CUT_AT_FIRST), self._rate * (1 - LEAST_CUT_AT_FIRST)
            self._rate, self.phase = min(max(found, least), most), "closing_in"

    def _slow_down(self, share: float, now: float) -> None:
        """Lowers the rate to the share, one step at a time: other workers may not use their shares."""
        if self.phase == "open":
            self.phase, self._rate, self._felt_since, self._grown = "steady", share, now, now
            self._cut_at = now
        elif self._cut_at is None or now - self._cut_at > LONGEST_STEP_SECONDS:
            self._rate = max(min(self._rate, share), self._rate * (1 - CUT), LEAST_RATE)
            self._cut_at = now

    def _hold_for(self, now: float, retry_after: float | None) -> None:
        if retry_after is None:
            retry_after = self._own_hold * self.uniform(0.25, 1.0)
            self._own_hold = min(2 * self._own_hold, LONGEST_OWN_HOLD_SECONDS)
        self.hold = max(self.hold, now + retry_after * self.uniform(1.0, LONGER_BY))
        self._next, self._grown = max(self._next, self.hold), self.hold
        if self._looking is None:
            # While they feel for a limit in haste, all of them look, and there is room for few.
            crowded = self.phase == "feeling" and self.workers > 1 and not self._held_long
            look = max(LOOK_SECONDS * (2 if crowded else 1), retry_after * self._part)
            self._look = now + look * self.uniform(1 - SPREAD, 1 + SPREAD) if self._part < 1 else None
