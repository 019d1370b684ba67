"""What brought a limiter to a stand, or lost what it had learned: an idle night, slow refusals, a call too large."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest

from everturn.errors import InvalidSetting
from everturn.limits import RateLimit
from everturn.models import Model
from everturn.providers.base import Request
from everturn.providers.rate_limits import limit_queue, turn_waits
from everturn.providers.rate_limits.limit_queue import Limit, limit_of, read_limits, set_known_limits
from everturn.providers.rate_limits.permits import Allowance, Permit
from everturn.providers.rate_limits.rate_limiter import LONGEST_TOLD_SECONDS, RateLimiter
from everturn.records import Message, Usage


class Provider:
    """Takes five calls a second, from a bucket of five."""

    def __init__(self, limiter: RateLimiter, *, retry_after: float = 5.0, answers_after: float = 0.05) -> None:
        self.limiter = limiter
        self.now = 0.0
        self.taken = self.refused = 0
        self._retry_after = retry_after
        self._answers_after = answers_after
        self._bucket, self._filled = 5.0, 0.0
        self._under_way: list[tuple[float, Permit]] = []

    def busy(self, seconds: float, *, waiting: int = 40) -> None:
        """So many calls wait, and another comes for each that is accepted."""
        end = self.now + seconds
        while self.now < end:
            at = self.limiter.next_time(self.now)
            may = at is not None and at <= self.now and len(self._under_way) < waiting
            if may:
                self._under_way.append((self.now + self._answers_after, self.limiter.record_sent(self.now)))
                continue
            times = [one for one, _ in self._under_way[:1]] + [at] * (at is not None and at > self.now)
            self.now = min([*times, end])
            self._answer()

    def trickle(self, calls: int, *, apart: float) -> None:
        for _ in range(calls):
            self.now += apart
            self._under_way.append((self.now, self.limiter.record_sent(self.now)))
            self._answer()

    def _answer(self) -> None:
        while self._under_way and self._under_way[0][0] <= self.now:
            _, permit = self._under_way.pop(0)
            self._bucket = min(5.0, self._bucket + (self.now - self._filled) * 5.0)
            self._filled = self.now
            if self._bucket >= 1:
                self._bucket -= 1
                self.taken += 1
                permit.answered = True
                self.limiter.record_accepted(permit, self.now)
            else:
                self.refused += 1
                self.limiter.record_refused(permit, self.now, self._retry_after)
            self.limiter.record_end(permit, self.now)


def limiter(**more: Any) -> RateLimiter:
    return RateLimiter(uniform=random.Random(1).uniform, **more)


@pytest.mark.parametrize("retry_after", [1.0, 20.0])
@pytest.mark.parametrize("pause", ["idle", "few calls"])
def test_what_was_learned_holds_after_a_night_and_after_an_hour_of_few_calls(pause: str, retry_after: float) -> None:
    """A rate that holds nothing back has not been tried, and does not grow."""
    provider = Provider(limiter(), retry_after=retry_after)
    provider.busy(300)
    if pause == "idle":
        provider.now += 8 * 3600
    else:
        provider.trickle(1_800, apart=2.0)
    provider.taken = provider.refused = 0
    provider.busy(600)
    assert provider.taken > 0.9 * 5 * 600
    assert provider.refused < 0.02 * provider.taken


def test_a_burst_of_calls_far_above_the_limit_is_no_reason_to_undo_cuts() -> None:
    """Each 429 comes after five accepted calls: those that the provider's bucket held."""
    provider = Provider(limiter())
    provider.busy(300)
    provider.limiter._rate = 1e5  # however it came to that
    provider.refused = provider.taken = 0
    provider.busy(600)
    assert provider.taken > 0.85 * 5 * 600
    assert provider.refused < 0.4 * provider.taken


def test_one_429_after_a_night_counts_what_was_sent_today() -> None:
    one = limiter()
    for tenth in range(20):
        one.record_accepted(one.record_sent(tenth / 10), tenth / 10)
    now = 8 * 3600.0
    one.record_refused(one.record_sent(now), now, 5.0)
    assert one.rate is not None
    assert one.rate > 1


@pytest.mark.parametrize("retry_after", [0.2, 1.0, 2.0])
def test_no_call_waits_longer_than_the_hold(retry_after: float) -> None:
    for workers in (1, 4):
        one = limiter(workers=workers)
        one.record_refused(one.record_sent(0.0), 0.0, retry_after)
        assert cast("float", one.next_time(0.01)) <= one.hold


def test_a_refusal_that_comes_late_takes_back_that_the_call_was_accepted() -> None:
    """A call counts as accepted after a second of silence. A gateway may say 429 later than that, each time."""
    provider = Provider(limiter(), answers_after=1.5)

    def silent(permit: Permit, at: float) -> None:
        provider.limiter.record_accepted(permit, at)

    one, now = provider.limiter, 0.0
    for _ in range(5):
        now = max(now, one.next_time(now) or now)
        permit = one.record_sent(now)
        silent(permit, now + 1.0)
        now += 1.5
        one.record_refused(permit, now, 1.0)
    assert one.refusing_since == pytest.approx(1.5)
    assert not one._taken
    permit = one.record_sent(one.next_time(now) or now)
    permit.answered = True
    one.record_accepted(permit, now + 5)
    assert one.refusing_since is None


def test_a_call_that_is_refused_while_others_are_accepted_does_not_slow_them_down() -> None:
    provider = Provider(limiter())
    provider.busy(300)
    one, now = provider.limiter, provider.now
    before = one.rate
    for _ in range(20):
        now = max(now, one.next_time(now) or now) + 0.01
        one.record_refused(one.record_sent(now), now, 1.0, refused_alone=True)
        now = max(now, one.next_time(now) or now) + 0.01
        one.record_accepted(one.record_sent(now), now)
    assert one.rate == pytest.approx(before, rel=0.05)


def test_who_is_refused_alone_is_known_and_given_up_after_patience() -> None:
    refusals = turn_waits._OwnRefusals()
    for number in range(3):
        assert not refusals.is_alone(accepted=100.0)
        refusals.add_refusal(50.0 + number)
    assert refusals.is_alone(accepted=51.0)
    assert not refusals.is_alone(accepted=49.0)  # nobody was accepted since
    assert refusals.seconds_refused() == 0
    for number in range(10):
        refusals.add_refusal(2_000.0 + number)
    assert refusals.seconds_refused() == pytest.approx(1_959.0)


@pytest.mark.parametrize(
    ("unit", "limit", "remaining", "reset", "used"),
    [
        ("tokens", 150_000, 149_990, 59.0, 100_000),  # hardly any of it is used, and that says nothing of the refill
        ("tokens", 100_000, 99_960, 82_800.0, 60_000),  # a limit for a day
        ("tokens", 100_000, 0, 82_800.0, 60_000),
        ("requests", 50, 0, 82_800.0, 1_000),
    ],
)
def test_headers_alone_stop_nobody_for_hours(
    unit: Any, limit: float, remaining: float, reset: float, used: int
) -> None:
    for phase in ("open", "steady"):
        one, now = limiter(), 0.0
        if phase == "steady":
            provider = Provider(one)
            provider.busy(60)
            now = provider.now
        for _ in range(20):
            one.record_usage(Usage(input_tokens=used))
        one.record_allowances([Allowance(unit, limit, remaining, reset)], now)
        for _ in range(3):
            at = cast("float", one.next_time(now))
            assert at - now <= LONGEST_TOLD_SECONDS
            now = at
            permit = one.record_sent(now)
            one.record_accepted(permit, now)
            one.record_end(permit, now)


def test_each_limit_is_compared_with_what_it_counts() -> None:
    """Anthropic limits output by itself, and leaves out input that it read from its cache."""
    one = limiter()
    for _ in range(40):
        one.record_usage(Usage(input_tokens=12_000, cached_tokens=11_500, output_tokens=300))
    tier = [
        Allowance("input_tokens", 30_000, 20_000, 20.0),
        Allowance("output_tokens", 8_000, 6_000, 15.0),
        Allowance("requests", 50, 40, 12.0),
    ]
    one.record_allowances(tier, 0.0)
    assert one.hold == 0.0
    assert one.rate is None


def test_a_look_that_broke_is_followed_by_another_and_refused_ones_are_forgotten_after_a_while() -> None:
    one = limiter()
    one.record_refused(one.record_sent(0.0), 0.0, 100.0)
    at = cast("float", one.next_time(0.0))
    look = one.record_sent(at)
    assert look.early
    one.record_end(look, at)  # a 503
    assert cast("float", one.next_time(at)) <= at + 5
    now = at
    for _ in range(5):
        now = cast("float", one.next_time(now)) + 0.01
        one.record_refused(one.record_sent(now), now, 100.0)
    assert cast("float", one.next_time(now)) == pytest.approx(one.hold)  # it means what it says
    later = now + 3 * 3600
    one.record_refused(one.record_sent(later), later, 100.0)
    assert cast("float", one.next_time(later)) < later + 30


# ------------------------------------------------------------ the limits of a process


@pytest.mark.parametrize("after", range(5))
async def test_a_turn_that_is_cancelled_as_it_is_let_through_leaves_its_place(
    after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = asyncio.Event()
    monkeypatch.setattr(turn_waits, "activity", SimpleNamespace(wait_for_worker_shutdown=never.wait))
    limit = Limit("openai", "KEY", limiter(), asyncio.Event())
    first = limit.permit_at_once()
    assert first
    turn = asyncio.create_task(turn_waits._waited_for(limit, 0.0))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    limit.record_end(first)
    for _ in range(after):
        await asyncio.sleep(0)
    turn.cancel()
    with suppress(asyncio.CancelledError):
        limit.record_end(await turn)
    assert limit.limiter._unanswered == 0
    assert limit.permit_at_once()


async def test_a_known_limit_also_holds_for_limiters_that_are_there_already(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    before = limit_of(Model("openai:m"))
    set_known_limits({"openai": RateLimit(rpm=60)})
    assert before.limiter.rate == 1.0
    limit_queue._loop_limits().known.clear()


def test_a_providers_limits_may_be_named_apart_and_none_twice() -> None:
    assert read_limits("openai:rpm=500,openai:tpm=200000") == {"openai": RateLimit(rpm=500, tpm=200_000)}
    for twice in ("openai:rpm=1+rpm=9", "openai:rpm=1,openai:rpm=9"):
        with pytest.raises(InvalidSetting, match="rpm of 'openai' twice"):
            read_limits(twice)
    with pytest.raises(InvalidSetting, match="is not a rate limit"):
        read_limits("openai:rpm=" + "9" * 5_000)


def test_what_a_large_first_call_will_use_is_estimated() -> None:
    question = Request(Model("openai:m"), [Message.user("word " * 40_000)], instructions="Be brief.")
    assert 45_000 < turn_waits.tokens_of(question) < 55_000
    one = limiter(tpm=200_000)
    one.tokens.expect_tokens(50_000)
    assert one.rate == pytest.approx(200_000 / 50_000 / 60)
