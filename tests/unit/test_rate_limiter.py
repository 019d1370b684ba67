"""What workers learn of a provider's limit, in virtual time: the code of a worker, without a clock or a wire."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from math import inf
from statistics import median
from typing import Any

import pytest

from everturn.providers.rate_limits.permits import Allowance, Permit
from everturn.providers.rate_limits.rate_limiter import RateLimiter
from everturn.records import Usage

RATE, BUCKET, RETRY_AFTER = 5.0, 5.0, 20.0


@dataclass
class Fleet:
    """Workers, and a provider that takes `rate` calls a second, and refuses some `at_random`. A worker has so many
    `slots`; who finds none waits for one, as in a task queue."""

    workers: int
    seed: int
    slots: int = 8
    retry_after: float = RETRY_AFTER
    rate: float = RATE
    at_random: float = 0.0
    busy_until: float = 1e9
    """Calls are refused at random until then."""
    known_after: float = 0.0
    """Each worker knows how many there are only so many seconds after its first 429, as it does in production."""
    now: float = 0.0
    refused: int = 0
    taken: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    sent: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)
        uniform = self._chance.uniform
        known = 1 if self.known_after else self.workers
        self.limiters = [RateLimiter(workers=known, uniform=uniform) for _ in range(self.workers)]
        self._free = [self.slots] * self.workers
        self._alarms = [inf] * self.workers
        self._queue: list[tuple[float, int]] = []
        self._here: list[list[tuple[float, int]]] = [[] for _ in range(self.workers)]
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._bucket, self._filled = BUCKET, 0.0

    def hold(self, conversations: int, *, turns: int) -> None:
        left = [turns] * conversations

        def ended(conversation: int) -> None:
            left[conversation] -= 1
            if left[conversation]:
                self._ask(conversation, ended)

        for number in range(conversations):
            self._at(self._chance.random() * 2, partial(self._ask, number, ended))
        while self._events:
            self.now, _, happens = heapq.heappop(self._events)
            assert self.now < 3_000, f"{sum(map(bool, left))} conversations are stalled"
            happens()
        assert not any(left)

    def run(self, conversations: int, *, seconds: float) -> None:
        """Conversations without an end, for so long."""

        def ended(conversation: int) -> None:
            self._ask(conversation, ended)

        for number in range(conversations):
            self._at(self._chance.random() * 2, partial(self._ask, number, ended))
        while self._events and self._events[0][0] < seconds:
            self.now, _, happens = heapq.heappop(self._events)
            happens()

    def _at(self, seconds: float, happens: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._order), happens))

    def _ask(self, conversation: int, ended: Callable[[int], None]) -> None:
        self._ended = ended
        self._queue.append((self.now, conversation))
        self._hand_out()

    def _hand_out(self) -> None:
        while self._queue and (free := [number for number in range(self.workers) if self._free[number]]):
            worker = self._chance.choice(free)
            self._free[worker] -= 1
            heapq.heappush(self._here[worker], self._queue.pop(0))
            self._wake(worker)

    def _ring(self, worker: int) -> None:
        self._alarms[worker] = inf
        self._wake(worker)

    def _wake(self, worker: int) -> None:
        limiter, waiting = self.limiters[worker], self._here[worker]
        while waiting:
            at = limiter.next_time(self.now)
            if at is None:
                return
            if at > self.now:
                if at < self._alarms[worker]:  # an earlier one looks again, too
                    self._alarms[worker] = at
                    self._at(at - self.now, partial(self._ring, worker))
                return
            came, conversation = heapq.heappop(waiting)
            permit = limiter.record_sent(self.now)
            self.sent.append(self.now)
            self._at(0.01, partial(self._answer, worker, came, conversation, permit))

    def _answer(self, worker: int, came: float, conversation: int, permit: Permit) -> None:
        limiter = self.limiters[worker]
        self._bucket = min(BUCKET, self._bucket + (self.now - self._filled) * self.rate)
        self._filled = self.now
        at_random = self.at_random if self.now < self.busy_until else 0.0
        if self._bucket >= 1 and self._chance.random() >= at_random:
            self._bucket -= 1
            self.taken.append(self.now)
            self.waits.append(self.now - came)
            limiter.record_accepted(permit, self.now)
            self._at(self._chance.uniform(0.2, 1.0), partial(self._done, worker, conversation))
        else:
            self.refused += 1
            if self.known_after and not limiter.refused_calls:
                self._at(self.known_after, partial(limiter.share_among, self.workers))
            limiter.record_refused(permit, self.now, self.retry_after)
            heapq.heappush(self._here[worker], (came, conversation))
        self._wake(worker)

    def _done(self, worker: int, conversation: int) -> None:
        self._free[worker] += 1
        self._ended(conversation)
        self._hand_out()

    @property
    def used(self) -> float:
        """Of what the provider would have taken in the time."""
        return len(self.taken) / RATE / self.taken[-1]

    def between(self, begin: float, end: float) -> float:
        return sum(begin <= at < end for at in self.taken) / RATE / (end - begin)


def check_fleets(workers: int, **more: Any) -> None:
    """What a fleet is to reach: 90 % of the rate and five 429s for 100 replies, in the median of three of them."""
    fleets = [Fleet(workers, seed, **more) for seed in range(3)]
    for fleet in fleets:
        fleet.hold(200, turns=3)
        waits = sorted(fleet.waits)
        assert waits[594] <= 3 * median(waits)
        assert fleet.used >= 0.84
        assert fleet.refused <= 0.09 * 600
    assert median(fleet.used for fleet in fleets) >= 0.90
    assert median(fleet.refused for fleet in fleets) <= 0.05 * 600


@pytest.mark.parametrize(("workers", "known_after"), [(1, 0.0), (4, 0.0), (4, 0.5), (8, 0.0), (8, 0.5)])
def test_a_limit_that_nobody_told_is_found_and_used(workers: int, known_after: float) -> None:
    check_fleets(workers, known_after=known_after)


@pytest.mark.parametrize("workers", [1, 8])
def test_with_few_slots_calls_wait_in_the_queue_and_no_worker_is_left_with_its_own(workers: int) -> None:
    check_fleets(workers, slots=32 // workers)


@pytest.mark.parametrize("workers", [1, 4, 8])
def test_once_found_nine_tenths_of_it_are_used_and_hardly_a_call_is_refused(workers: int) -> None:
    fleet = Fleet(workers, seed=7)
    fleet.hold(400, turns=5)
    assert fleet.between(30, 300) >= 0.9
    assert fleet.refused <= 0.05 * 2_000


@pytest.mark.parametrize("at_random", [0.05, 0.12])
@pytest.mark.parametrize(("workers", "retry_after"), [(1, 0.0), (1, 1.0), (4, 0.0), (4, 1.0)])
def test_refusals_at_any_rate_are_not_taken_for_a_limit(workers: int, retry_after: float, at_random: float) -> None:
    """Where fifty calls a second were possible, 10 % of such refusals took one worker to 1.6."""
    rates = [_taken_a_second(_noisy(workers, seed, at_random, retry_after), 20, 80) for seed in range(3)]
    possible = _taken_a_second(_noisy(workers, 0, 0.0, retry_after), 20, 80) * (1 - at_random)
    assert median(rates) >= (0.7 if workers == 1 else 0.5) * possible


@pytest.mark.parametrize("workers", [1, 4])
def test_after_a_bad_minute_the_rate_is_back_soon(workers: int) -> None:
    """After 90 s in which 20 % were refused, it took 108 s and more until five calls a second went out."""
    fleets = [_noisy(workers, seed, 0.2, 1.0, until=90.0) for seed in range(5)]
    assert median(_taken_a_second(fleet, 105, 110) for fleet in fleets) >= 5


def test_a_limit_is_found_beside_refusals_at_any_rate() -> None:
    fleets = [Fleet(1, seed, slots=64, retry_after=0.0, at_random=0.05) for seed in range(3)]
    for fleet in fleets:
        fleet.run(40, seconds=240)
    assert median(fleet.between(60, 240) for fleet in fleets) >= 0.3
    assert median(fleet.refused / len(fleet.sent) for fleet in fleets) <= 0.15


def _noisy(workers: int, seed: int, at_random: float, retry_after: float, *, until: float = 0.0) -> Fleet:
    """A provider that takes any number of calls, and refuses some of them, until that time if there is one."""
    fleet = Fleet(workers, seed, 64 // workers, retry_after, rate=1e6, at_random=at_random, busy_until=until or 1e9)
    fleet.run(30, seconds=until + 20 if until else 80.0)
    return fleet


def _taken_a_second(fleet: Fleet, begin: float, end: float) -> float:
    return sum(begin <= at < end for at in fleet.taken) / (end - begin)


@pytest.mark.parametrize(("workers", "refused"), [(1, 0.03), (4, 0.07), (8, 0.2)])
def test_a_limit_whose_429_names_no_wait_is_found_too(workers: int, refused: float) -> None:
    """The call that was refused went out again at once, whatever the rate: eight workers used a sixth of the limit."""
    fleets = [Fleet(workers, seed, retry_after=0.0) for seed in range(3)]
    for fleet in fleets:
        fleet.hold(200, turns=3)
    assert median(fleet.used for fleet in fleets) >= 0.8
    assert median(fleet.refused for fleet in fleets) <= refused * 600


def test_a_refused_call_keeps_the_rate() -> None:
    limiter = RateLimiter(rpm=60)
    limiter.record_refused(limiter.record_sent(10.0), 10.1, 0.0)
    at = limiter.next_time(10.2)
    assert at is not None
    assert at >= 11.0


def test_retry_after_holds_all_calls() -> None:
    limiter = RateLimiter()
    limiter.record_refused(limiter.record_sent(0.0), 0.1, 100.0)
    early = limiter.next_time(0.2)
    assert early is not None
    assert early >= 5.0  # one, to see whether the hold is needed
    permit = limiter.record_sent(early)
    assert limiter.next_time(early) is None  # and no other beside it
    limiter.record_refused(permit, early + 0.1, 100.0 - early)
    later = limiter.next_time(early + 0.2)
    assert later is not None
    assert later >= early + 10.0
    limiter.record_refused(limiter.record_sent(later), later + 0.1, 100.0 - later)
    end = limiter.next_time(later + 0.2)
    assert end is not None
    assert end >= later + 15.0  # they are needed here: the next looks come later and later


def test_a_limit_that_is_known_is_never_passed_and_is_divided() -> None:
    limiter = RateLimiter(workers=4, rpm=240)
    now, sent = 0.0, []
    while now < 60:
        at = limiter.next_time(now)
        assert at is not None
        now = at
        sent.append(now)
        limiter.record_accepted(limiter.record_sent(now), now)
    assert 59 <= len([at for at in sent if at < 60]) <= 61
    by_tokens = RateLimiter(tpm=60_000)
    for _ in range(100):
        by_tokens.record_usage(Usage(input_tokens=1_500, output_tokens=500))
    assert by_tokens.rate == pytest.approx(0.5, rel=0.01)


def test_the_first_report_replaces_what_was_assumed_of_a_call() -> None:
    limiter = RateLimiter(tpm=1_200)
    limiter.tokens.expect_tokens(20)
    now, sent = 0.0, list[float]()
    while now < 25:
        at = limiter.next_time(now)
        assert at is not None
        now = at
        sent.append(now)
        limiter.record_accepted(limiter.record_sent(now), now)
        limiter.record_usage(Usage(input_tokens=30, output_tokens=10))
    assert 11 <= len([at for at in sent if at < 25]) <= 14
    without = RateLimiter(tpm=60_000)
    without.record_sent(0.0)
    assert without.next_time(0.0) is None or (without.next_time(0.0) or 0.0) > 0.5
    without.record_usage(Usage(input_tokens=50, output_tokens=50))
    assert without.rate == pytest.approx(10.0)


def test_calls_without_a_limit_wait_only_for_the_first_answers() -> None:
    limiter, out = RateLimiter(), []
    for _ in range(8):
        while limiter.next_time(0.0) is not None:
            out.append(limiter.record_sent(0.0))
        for permit in out:
            limiter.record_accepted(permit, 0.0)
    assert len(out) >= 200
    assert limiter.rate is None


def test_headers_that_say_how_much_is_left_open_the_window_at_once_and_slow_down_before_a_429() -> None:
    limiter = RateLimiter()
    limiter.record_accepted(limiter.record_sent(0.0), 0.1)
    limiter.record_allowances([Allowance("requests", limit=15_000, remaining=14_999, reset=0.004)], 0.1)
    assert len([limiter.record_sent(0.1) for _ in range(1_000) if limiter.next_time(0.1) is not None]) == 1_000
    limiter.record_allowances([Allowance("requests", limit=300, remaining=10, reset=58.0)], 1.0)
    assert limiter.rate == pytest.approx(5.0)
    limiter.record_allowances([Allowance("tokens", limit=60_000, remaining=0, reset=60.0)], 2.0)
    assert limiter.next_time(2.0) == pytest.approx(3.0)  # 1,000 tokens, at 1,000 a second


def test_a_worker_that_was_busy_before_its_first_429_goes_on_almost_as_fast() -> None:
    limiter, now = RateLimiter(), 0.0
    while now < 20:
        now += 0.02
        limiter.record_accepted(limiter.record_sent(now), now)
    limiter.record_refused(limiter.record_sent(now), now, 1.0)
    assert limiter.rate == pytest.approx(50 * 0.85, rel=0.02)


def test_a_call_that_breaks_leaves_its_place() -> None:
    limiter = RateLimiter()
    permit = limiter.record_sent(0.0)
    assert limiter.next_time(0.0) is None
    limiter.record_end(permit, 1.0)
    assert limiter.next_time(0.0) == 0.0
    limiter.record_end(permit, 1.0)  # said twice, it counts once
    assert limiter.record_sent(0.0)
    assert limiter.next_time(0.0) is None


@pytest.mark.parametrize("retry_after", [0.0, 20.0, None])
@pytest.mark.parametrize("workers", [1, 8])
def test_a_provider_that_was_away_for_hours_is_left_alone_and_asked_again_soon_after(
    workers: int, retry_after: float | None
) -> None:
    limiter, now = RateLimiter(workers=workers, uniform=random.Random(0).uniform), 0.0

    def call(*, refused: bool) -> None:
        nonlocal now
        while (at := limiter.next_time(now)) is not None and at > now:
            now = at
        permit = limiter.record_sent(now)
        now += 0.01
        if refused:
            limiter.record_refused(permit, now, retry_after)
        else:
            limiter.record_accepted(permit, now)
        limiter.record_end(permit, 1.0)

    for _ in range(20):
        call(refused=False)
    while now < 4 * 3_600:
        call(refused=True)
    assert limiter.refused_calls < 4 * 3_600
    back = now
    for _ in range(40):
        call(refused=False)
    assert now - back < 180
