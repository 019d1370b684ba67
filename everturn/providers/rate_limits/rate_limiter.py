"""When calls of one provider and key may go out: how a worker finds a limit that is not announced.

Pure: the caller passes the time, and the limiter sends nothing. Workers do not share what they learn (decision 0034):

- `open`: no limit was met. Unanswered calls are bounded; each accepted call makes room for one more.
- `feeling`: after the first 429, the rate starts low, and grows fast until the next 429.
- `closing_in`: then the rate is what the provider really accepted, less a margin, and grows slowly.
- `steady`: each 429 lowers the rate. Without one it grows a little; the longer none comes, the faster.

429s that do not come of the rate are told apart in `refusal_noise`: these lower nothing, and hold only their own call.

Workers that share a limit whose 429s hold calls for long do otherwise from `feeling` on: `worker_share`.

A 429's Retry-After holds all calls. Many ask for more than is needed, so one call is sent early. If it is accepted,
the hold ends, and the next early call comes sooner. If it is refused, later ones wait longer, up to the whole hold.

The numbers come from simulations: 1, 4 and 8 workers on a provider with a bucket of five calls, five a second.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Literal, assert_never

from everturn.providers.rate_limits import worker_share
from everturn.providers.rate_limits.permits import Allowance, Permit, Unit
from everturn.providers.rate_limits.refusal_noise import RefusalNoise
from everturn.providers.rate_limits.worker_share import WorkerShare
from everturn.records import Usage

Phase = Literal["open", "feeling", "closing_in", "steady"]

FIRST_WINDOW: Final = 1
FIRST_RATE: Final = 4.0
"""Calls a second, of all workers, at which the search starts if nothing better is known."""
FIRST_RATE_SHARED: Final = 1.15
"""FIRST_RATE is divided by this power of the number of workers: by more than their number, as all start at once."""
KNOWN_AFTER_SECONDS: Final = 5.0
"""Calls accepted before the first 429 show the rate only after this long."""

FEELING_GROWTH: Final = 1.3
FEELING_GROWTH_SHARED: Final = 1.15
"""Per second: of a worker alone, and of one that shares the limit, since the others grow meanwhile."""
CLOSING_GROWTH: Final = 1.1
CLOSING_STEP: Final = 0.2
"""Added to the rate each second, in calls a second, besides the growth."""
STEADY_GROWTH: Final = 0.002
QUIET_SECONDS: Final = 25.0
"""After this long without a 429 the growth doubles; it goes on with the square of the time."""
LONGEST_STEP_SECONDS: Final = 2.0

LEAST_RATE: Final = 0.01
MOST_RATE: Final = 1e6

FIRST_LOOK: Final = 0.1
"""The part of a hold after which one call is sent early."""
LEAST_LOOK: Final = 0.02
LOOK_SECONDS: Final = 2.0
"""The earliest time for that call, give or take a half."""
EARLIER: Final = 1.3
LATER: Final = 3.0
SPREAD: Final = 0.5
LEAST_TEST_SECONDS: Final = 1.0
"""While one call tests for noise, the others wait at most so long, if the 429 holds them for less."""
LONGER_BY: Final = 1.25
"""A hold is lengthened at random, up to this factor: workers that were refused together come back one by one."""
OWN_HOLD_SECONDS: Final = 1.0
LONGEST_OWN_HOLD_SECONDS: Final = 30.0
"""Holds for when a provider does not say how long."""

SHORT: Final = 0.1
"""If only this share of a limit is left, the rate is lowered before a 429 comes."""
LONGEST_TOLD_SECONDS: Final = 120.0
"""Headers alone hold calls for no longer: after that one call goes, and tells more."""
UNUSED_SECONDS: Final = 0.25
"""A call that goes out so much later than it could have was not held back by the rate, which then does not grow."""
NEW_LOOKS_SECONDS: Final = 600.0
"""After so long without a 429, holds are tested early again, whatever came of it before."""

# How far a 429 lowers the rate, and what counts as measured by then.
MARGIN: Final = 0.9
MARGIN_SHARED: Final = 0.7
"""The share of the accepted calls, alone and shared, to start from: the provider's bucket was full at first."""
CUT: Final = 0.15
LEAST_CUT_AT_FIRST: Final = 0.3
MOST_CUT_AT_FIRST: Final = 0.6
MOST_CUT: Final = 0.4
MEASURED_SECONDS: Final = 25.0
FAR_ABOVE: Final = 4.0
"""If most calls are refused, a rate so many times what was accepted is no measure to cut from."""
MANY_REFUSALS: Final = 3
MANY_CUT: Final = 0.3
"""So many 429s, with hardly an accepted call between them: the rate of workers that share a limit is far too high."""
FEW_AT_FIRST: Final = 4
FEW_CALLS: Final = 5
"""Fewer accepted calls than this do not show a rate."""

FIRST_TOKENS: Final[dict[Unit, float]] = {
    "requests": 1.0,
    "tokens": 1_000.0,
    "input_tokens": 1_000.0,
    "output_tokens": 250.0,
}
"""What a call takes of each limit, assumed until calls have reported theirs."""

AVERAGED_CALLS: Final = 8


@dataclass
class TokensOfCalls:
    """How many tokens a provider's limits count for a call: on average, of calls that have reported theirs."""

    _average: dict[Unit, float] = field(default_factory=lambda: {**FIRST_TOKENS})
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
            self._average[unit] += (tokens - self._average[unit]) / AVERAGED_CALLS
        else:  # what was only assumed has no part in it
            self._counted.add(unit)
            self._average[unit] = float(tokens)


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
    tokens: TokensOfCalls = field(default_factory=TokensOfCalls)
    answered_at: float = 0.0
    """When an answer last showed that a call was accepted."""
    _rate: float = 0.0
    _window: int = FIRST_WINDOW
    _unanswered: int = 0
    _next: float = 0.0
    _last: float = 0.0
    """When the last call was due."""
    _look: float | None = None
    _looking: Permit | None = None
    _tests_noise: bool = False
    """The early call tests whether the 429s come of the rate."""
    _part: float = field(default_factory=lambda: FIRST_LOOK)
    _own_hold: float = OWN_HOLD_SECONDS
    _grown: float = 0.0
    _felt_since: float = 0.0
    _cut_at: float | None = None
    _idle: float = 0.0
    """Seconds since the last cut in which the rate held no call back."""
    _noise: RefusalNoise = field(default_factory=RefusalNoise)
    _taken: deque[float] = field(default_factory=deque)
    _refused_at: float | None = None
    _held_long: bool = False
    """The first 429 held calls for long."""
    _own: WorkerShare | None = None
    """This worker's share of a limit that others share."""
    _refused_in_a_row: int = 0
    """429s with at most one accepted call between them."""

    def share_among(self, workers: int) -> None:
        """Says how many workers share the limit. Who felt for it alone meanwhile goes on with its share."""
        if self.phase == "feeling" and self._held_long:
            self._rate = max(self._rate * self.workers / workers, LEAST_RATE)
        self.workers = workers
        self._keep_pace()

    @property
    def is_noisy(self) -> bool:
        """Calls are refused at any rate: a 429 holds only its own call."""
        return self._noise.level is not None

    @property
    def rate(self) -> float | None:
        """Calls a second of this worker; None while it knows no limit."""
        known = self._known_rate()
        if self.phase == "open":
            return known
        if known is None:
            return self._rate
        return min(self._rate, known)

    # ------------------------------------------------------------ may one go?

    def next_time(self, now: float) -> float | None:
        """The time from which the next call may go; None: only after a running call is answered."""
        if now < self.hold:
            if self._looking:
                return None
            if self._look is None:
                return self.hold
            return min(self.hold, max(now, self._look))
        if self.phase == "open" and self._unanswered >= self._window:
            return None
        if self.rate is None:
            return now
        return max(now, self._next)

    def record_sent(self, now: float) -> Permit:
        """Records that a call goes out, at a time that `next_time` returned."""
        permit = Permit(now, early=now < self.hold)
        self._unanswered += 1
        if permit.early:
            self._looking = permit
            return permit
        self._grow_rate(now)
        if rate := self.rate:
            self._last = self._next if self._next > now - 1 / rate else now
            self._next = max(now, self._last + 1 / rate)
        return permit

    # ------------------------------------------------------------ what came of it

    def record_accepted(self, permit: Permit, now: float) -> None:
        """The provider accepted the call, or has not refused it for a while. Reporting it twice changes nothing."""
        if permit.answered:
            self.answered_at = now
        if permit.counted:
            return
        permit.counted = True
        permit.counted_at = now
        permit.refusing_since = self.refusing_since
        self._close_permit(permit)
        self.refusing_since = None
        self._own_hold = OWN_HOLD_SECONDS
        self._noise.record_accepted()
        if self.workers == 1 and self.phase == "steady" and self._noise.is_far_below(self._rate):
            self.phase = "closing_in"
        self._taken.append(now)
        self._forget_before(now - MEASURED_SECONDS)
        if self.phase == "open":
            self._window += 1
            self._felt_since = self._taken[0]
        if self._looking is permit:
            self._looking = self._look = None
            self._part = max(self._part / EARLIER, LEAST_LOOK)
            self.hold = self._next = self._grown = now
            if self._tests_noise:
                self._tests_noise = False
                self._raise_rate(self._noise.confirm_noise(), now)
            if self._takes_care:  # the early call took what had come back meanwhile
                self._next = now + 1 / self._rate

    def record_refused(
        self, permit: Permit | None, now: float, retry_after: float | None, *, refused_alone: bool = False
    ) -> None:
        """The call was answered with 429. `permit` is None if it went out without one. `refused_alone`: the same call
        was refused before, and others were accepted since, so it says nothing about the rate."""
        self.refused_calls += 1
        sent_early = permit is not None and self._looking is permit
        suspected = False
        if permit is not None:
            self._close_permit(permit)
            self._take_back(permit)
        if self._refused_at is not None and now - self._refused_at > NEW_LOOKS_SECONDS:
            self._part = FIRST_LOOK
        self._refused_at = now
        if sent_early:
            self._looking = None
            if self._tests_noise:
                self._tests_noise = False
                self._noise.reject_noise()
            else:
                self._part = min(1.0, self._part * LATER)
        elif not refused_alone and (permit is None or self._cut_at is None or permit.sent >= self._cut_at):
            # else it was under way by the last cut
            if self._noise.in_a_row < 2:
                self._refused_in_a_row += 1
            else:
                self._refused_in_a_row = 0
            learned = self.phase in ("steady", "closing_in") and self._own is None
            if not self._noise.explains_refusal(now):
                suspected = self._noise.is_suspected(self._rate, learned=learned)
                self._noise.before_cut = self._rate
                self._cut_rate(now, held_seconds=self._own_hold if retry_after is None else retry_after)
        self._noise.record_refused(now)
        if self.refusing_since is None:
            self.refusing_since = now
        if not self.is_noisy:
            self._hold_for(now, retry_after)
        if suspected and self._looking is None:
            self._tests_noise = True
            self.hold = max(self.hold, now + LEAST_TEST_SECONDS)
            self._look = now

    def record_end(self, permit: Permit, now: float) -> None:
        """The call ended, with any outcome."""
        self._close_permit(permit)
        if self._looking is permit:  # it broke, and says nothing about the hold: another call tests it
            self._looking = None
            self._look = now + LOOK_SECONDS
            self._tests_noise = False

    def record_usage(self, usage: Usage) -> None:
        """One call used these tokens."""
        self.tokens.add_usage(usage)
        self._keep_pace()

    def record_allowances(self, allowances: Sequence[Allowance], now: float) -> None:
        """Takes in the headers of an answer; those of a refusal count too."""
        rooms: list[float] = []
        for allowance in allowances:
            need = self.tokens.tokens_needed(allowance.unit)
            filled = allowance.refill_rate
            if allowance.limit <= 0 or filled <= 0:
                continue
            rooms.append(allowance.remaining / need)
            if allowance.remaining < need:
                wait = min((need - allowance.remaining) / filled, LONGEST_TOLD_SECONDS)
                if allowance.reset is not None:
                    wait = min(wait, allowance.reset)
                self.hold = max(self.hold, now + wait)
                self._next = max(self._next, self.hold)
            if allowance.remaining < max(2 * need, SHORT * allowance.limit):
                self._slow_down(filled / need / self.workers, now)
        if rooms and self.phase == "open":
            self._window = max(self._window, int(min(rooms) / 2 / self.workers))

    # ------------------------------------------------------------ underneath

    def _keep_pace(self) -> None:
        """The time of the next call, by the rate as it is now: after one that was far too low, it is far too late."""
        if self.phase == "open" and (rate := self.rate):
            self._next = min(self._next, self._last + 1 / rate)

    def _known_rate(self) -> float | None:
        rates: list[float] = []
        if self.rpm:
            rates.append(self.rpm)
        if self.tpm:
            rates.append(self.tpm / self.tokens.tokens_needed("tokens"))
        if not rates:
            return None
        return min(rates) / 60 / self.workers

    def _close_permit(self, permit: Permit) -> None:
        if permit.open:
            permit.open = False
            self._unanswered -= 1

    def _grow_rate(self, now: float) -> None:
        """Raises the rate for the time since it last grew: a pause counts for LONGEST_STEP_SECONDS at most. If fewer
        calls came than it allows, it has not been tried, and stays."""
        seconds = min(now - self._grown, LONGEST_STEP_SECONDS)
        self._grown = now
        if (unused := now - max(self._next, self._cut_at or 0.0)) > UNUSED_SECONDS:
            self._idle += unused
            return
        if seconds <= 0:
            return
        quiet = now - (self._cut_at or 0.0) - self._idle
        match self.phase:
            case "open":
                return
            case "closing_in" | "steady" if self.is_noisy and not self._own:
                self._rate *= FEELING_GROWTH**seconds
            case "feeling" if self._takes_care:
                self._rate = worker_share.felt_rate(self._rate, seconds, quiet=quiet)
            case "feeling":
                self._rate *= (FEELING_GROWTH if self.workers == 1 else FEELING_GROWTH_SHARED) ** seconds
            case "closing_in" | "steady" if self._own:
                self._rate = self._own.grow_rate(self._rate, seconds, quiet=quiet / QUIET_SECONDS, workers=self.workers)
            case "closing_in":
                self._rate *= CLOSING_GROWTH ** (seconds / self.workers**2)
                self._rate += CLOSING_STEP * seconds / self.workers**2
            case "steady":
                self._rate *= 1 + STEADY_GROWTH / self.workers * (1 + (quiet / QUIET_SECONDS) ** 2) * seconds
            case other:
                assert_never(other)
        most = self._known_rate()
        if most is None:
            most = MOST_RATE
        self._rate = min(self._rate, most)
        if self._own:
            self._own.rate = min(self._own.rate, most)

    @property
    def _takes_care(self) -> bool:
        return self._own is not None or (self.phase == "feeling" and self._held_long and self.workers > 1)

    def _take_back(self, permit: Permit) -> None:
        """The call was taken to be accepted since nothing was heard of it, and is refused after all."""
        if not permit.counted or permit.answered:
            return
        permit.counted = False
        with suppress(ValueError):
            self._taken.remove(permit.counted_at)
        if permit.refusing_since is not None and permit.counted_at > self.answered_at:
            self.refusing_since = permit.refusing_since

    def _forget_before(self, time: float) -> None:
        while self._taken and self._taken[0] < time:
            self._taken.popleft()

    def _was_cut(self, now: float) -> None:
        self._cut_at = now
        self._idle = 0.0

    def _raise_rate(self, rate: float, now: float) -> None:
        self._rate = rate
        self._was_cut(now)
        if self._own:
            self._own.rate = max(self._own.rate, rate)

    def _cut_rate(self, now: float, *, held_seconds: float) -> None:
        """Lowers the rate after a 429 for a call that went out since the last cut, and that holds calls so long."""
        self._forget_before(now - MEASURED_SECONDS)
        span = min(now - self._felt_since, MEASURED_SECONDS)
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
            self._rate = known * (1 - CUT)
            self.phase = "steady"
        elif len(self._taken) >= FEW_CALLS and span >= KNOWN_AFTER_SECONDS:
            self._rate = len(self._taken) / span * (1 - CUT)
            self.phase = "closing_in"
        else:
            self._held_long = held_seconds > worker_share.LONG_HOLD_SECONDS
            shared = self.workers if self._held_long else self.workers**FIRST_RATE_SHARED
            self._rate = FIRST_RATE / shared
            self.phase = "feeling"
            self._felt_since = now
            self._taken.clear()
        self._rate = max(self._rate, LEAST_RATE)
        self._was_cut(now)

    def _cut_with_care(self, now: float) -> None:
        if self._own:
            self._rate = self._own.cut_rate(self._rate, now)
            self.phase = "steady"
        elif len(self._taken) >= worker_share.FEW_CALLS:
            self._own = WorkerShare.from_search(self._rate, now, workers=self.workers)
            self._rate = self._own.rate_below
            self.phase = "closing_in"

    def _cut_to_what_was_taken(self, now: float) -> None:
        span = max(0.1, min(MEASURED_SECONDS, now - self._felt_since))
        self._forget_before(now - span)
        accepted_rate = len(self._taken) / span
        if self.phase != "feeling":
            if len(self._taken) >= FEW_CALLS:
                self.phase = "steady"
                if self._noise.mostly_refused:
                    self._rate = min(self._rate, FAR_ABOVE * accepted_rate)
            self._rate = max(self._rate * (1 - MOST_CUT), min(self._rate * (1 - CUT), accepted_rate))
        elif len(self._taken) >= FEW_AT_FIRST or self.workers == 1:
            margin = MARGIN if self.workers == 1 else MARGIN_SHARED
            least = self._rate * (1 - MOST_CUT_AT_FIRST)
            most = self._rate * (1 - LEAST_CUT_AT_FIRST)
            self._rate = min(max(accepted_rate * margin, least), most)
            self.phase = "closing_in"

    def _slow_down(self, share: float, now: float) -> None:
        """Lowers the rate to the share, one step at a time: other workers may not use their shares."""
        if self.phase == "open":
            self.phase = "steady"
            self._rate = max(share, LEAST_RATE)
            self._felt_since = self._grown = now
            self._was_cut(now)
        elif self._cut_at is None or now - self._cut_at > LONGEST_STEP_SECONDS:
            self._rate = max(min(self._rate, share), self._rate * (1 - CUT), LEAST_RATE)
            self._was_cut(now)

    def _hold_for(self, now: float, retry_after: float | None) -> None:
        if retry_after is None:
            retry_after = self._own_hold * self.uniform(0.25, 1.0)
            self._own_hold = min(2 * self._own_hold, LONGEST_OWN_HOLD_SECONDS)
        self.hold = max(self.hold, now + retry_after * self.uniform(1.0, LONGER_BY))
        self._next = max(self._next, self.hold)
        self._grown = self.hold
        if self._looking is None:
            # While they feel for a limit in haste, all of them look, and there is room for few.
            crowded = self.phase == "feeling" and self.workers > 1 and not self._held_long
            least = 2 * LOOK_SECONDS if crowded else LOOK_SECONDS
            self._look = None
            if self._part < 1:
                look = max(least, retry_after * self._part)
                self._look = now + look * self.uniform(1 - SPREAD, 1 + SPREAD)
