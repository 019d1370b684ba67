"""A tenant's budget as it is kept: who may take a turn, who waits, and who goes on when."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everturn import Budget
from everturn.budgets.ledger import DAY_SECONDS, MOST_WAITING, MOST_WAKES, WAKE_SECONDS, Ledger
from everturn.budgets.records import (
    BudgetStart,
    BudgetTerms,
    Spending,
    SpendingAnswer,
    SpendingBatch,
    UnreportedSpending,
    declared_budgets,
)
from everturn.errors import InvalidSetting
from everturn.sizes import MAX_PAYLOAD_BYTES, size_of

NOON = 20_000.5 * DAY_SECONDS
NOVEMBER = 20_028 * DAY_SECONDS
"""The first second of the next month."""


class Office:
    """A ledger and the worker that speaks to it."""

    def __init__(self, **terms: Any) -> None:
        self.ledger = Ledger(BudgetStart(tenant="acme", budget=BudgetTerms.from_budget(Budget(**terms))))
        self.now = NOON
        self.number = 0

    def says(self, *items: Spending, number: int | None = None) -> SpendingAnswer:
        self.number += 1
        batch = SpendingBatch(worker="w", number=self.number if number is None else number, items=items)
        return self.ledger.take_batch(batch, now=self.now)

    def asks(self, name: str, *, asked: bool = False) -> bool:
        """Whether it may take a turn."""
        return not self.says(Spending(conversation=name, asks=True, asked=asked)).refused

    def spends(self, name: str, tokens: int = 0, *, usd: float | None = 0.0, done: bool = False) -> None:
        self.says(Spending(conversation=name, tokens=tokens, cost_usd=usd, done=done))

    def wakes(self) -> list[str]:
        return self.ledger.wake_waiting(self.now)


def test_who_has_used_a_days_tokens_waits_until_midnight() -> None:
    office = Office(tokens_per_day=100)
    assert office.asks("a")
    office.spends("a", 100)
    assert not office.asks("a")
    assert not office.asks("b")
    assert office.wakes() == []
    midnight = office.ledger.next_wake(office.now)
    assert midnight == 20_001 * DAY_SECONDS
    office.now = midnight
    assert office.wakes() == ["a", "b"]
    assert office.asks("a")
    assert office.ledger.status(office.now).tokens == 0


def office_after_a_wrong_clock(*, days: int, **terms: Any) -> Office:
    """The budget is of 100 tokens, and 60 of them are used when a clock is wrong by so many days; then all are."""
    office = Office(**terms)
    office.spends("a", 60)
    office.now += days * DAY_SECONDS
    office.spends("b", 500)
    office.now = NOON + 60
    assert office.asks("a"), "60 of 100 are used"
    office.spends("a", 60)
    assert not office.asks("a")
    return office


@pytest.mark.parametrize("days", [30, 1, -1, -30, 400])
def test_a_clock_that_is_wrong_for_one_update_changes_no_other_day(days: int) -> None:
    office = office_after_a_wrong_clock(days=days, tokens_per_day=100)
    assert office.ledger.status(office.now).tokens == 120
    assert office.ledger.next_wake(office.now) == 20_001 * DAY_SECONDS, "as the cure says"
    office.ledger = Ledger(office.ledger.as_start())  # a new run
    office.now = 20_001 * DAY_SECONDS + 1
    assert office.asks("a") == (days != 1), "a day ahead is the next day: what was reported for it counts then"


def test_the_limit_that_opens_last_is_named_and_a_total_never_opens() -> None:
    office = Office(tokens_per_day=100, usd_per_month=3.0, tokens_total=400)  # noon of 2024-10-04
    ask = Spending(conversation="a", asks=True)

    def refusal() -> list[str]:
        return [text for refused in office.says(ask).refused for text in (refused.cause, refused.cure)]

    office.spends("a", 150, usd=3.5)
    assert refusal() == [
        "Tenant 'acme' has used 3.50 dollars this month, and may use 3.00.",
        "It goes on by itself on 2024-11-01 at 00:00 UTC, or with more: `everturn budget acme --usd-per-month …`.",
    ]
    assert office.ledger.next_wake(office.now) == 20_001 * DAY_SECONDS, "no alarm is set for longer than a day"
    office.ledger = Ledger(BudgetStart.model_validate(office.ledger.as_start().model_dump(mode="json")))
    office.now = 20_001 * DAY_SECONDS
    assert office.wakes() == []
    office.now = NOVEMBER
    assert office.wakes() == ["a"]
    assert office.asks("a")
    office.spends("a", 250)
    assert refusal() == [
        "Tenant 'acme' has used 400 tokens in all, and may use 400.",
        "It goes on with more only: `everturn budget acme --tokens-total …`.",
    ]
    assert office.ledger.next_wake(office.now) is None
    status = office.ledger.status(NOVEMBER)
    assert (status.month, status.tokens_this_month, status.cost_usd_this_month) == ("2024-11", 250, 0.0)
    assert (status.tokens, status.tokens_total, status.cost_usd_total) == (250, 400, 3.5)


@pytest.mark.parametrize("days", [30, -30, 400])
def test_a_clock_that_is_wrong_locks_no_month_and_frees_none(days: int) -> None:
    office = office_after_a_wrong_clock(days=days, tokens_per_month=100)
    office.ledger = Ledger(office.ledger.as_start())
    office.now = NOVEMBER
    assert office.asks("a")


def test_near_any_limit_conversations_tell_sooner() -> None:
    office = Office(tokens_per_day=1_000_000, tokens_per_month=200, usd_total=10.0)
    office.spends("a", 100, usd=5.0)
    room = office.says().room
    assert (room.tokens, room.cost_usd) == (5, 0.25)


def test_a_budget_that_an_older_version_kept_counts_the_days_that_it_knows() -> None:
    days = ({"day": 19_999, "tokens": 7}, {"day": 19_900, "tokens": 9})
    budget = {"tokens_per_day": 5}
    old = {"tenant": "acme", "budget": budget, "day": 20_000, "tokens": 5, "turns": 1, "other_days": days}
    status = Ledger(BudgetStart.model_validate(old)).status(NOON)
    assert (status.tokens, status.tokens_this_month, status.tokens_total) == (5, 12, 21)


def test_a_clock_that_is_ahead_keeps_no_place_and_holds_up_nobody() -> None:
    office = Office(conversations=1)
    office.now += 30 * DAY_SECONDS
    assert office.asks("a")
    office.now = NOON
    assert not office.asks("b")
    office.now += office.ledger.terms.lease + 1
    assert office.wakes() == ["b"]
    assert office.asks("b")


def test_a_larger_budget_wakes_those_that_wait() -> None:
    office = Office(usd_per_day=1.0)
    office.spends("a", usd=1.5)
    assert not office.asks("a")
    office.ledger.set_terms(BudgetTerms(usd_per_day=2.0), set_by="ops")
    assert office.wakes() == ["a"]
    assert office.ledger.status(office.now).by == "ops"


def test_turns_without_a_price_count_tokens_and_no_dollars() -> None:
    office = Office(usd_per_day=1.0)
    office.spends("a", 5, usd=None)
    office.spends("a", 5, usd=0.25)
    status = office.ledger.status(office.now)
    assert (status.turns, status.tokens, status.cost_usd, status.unpriced_turns) == (2, 10, 0.25, 1)


def test_a_place_goes_to_who_waits_longest() -> None:
    office = Office(conversations=1)
    assert office.asks("a")
    assert office.asks("a")  # it has one already
    assert not office.asks("b")
    assert not office.asks("c")
    office.spends("a", done=True)
    assert office.wakes() == ["b"]
    assert not office.asks("d")  # the place is kept for b
    assert office.asks("b")
    assert office.wakes() == []


def test_a_conversation_that_was_terminated_holds_its_place_for_a_lease() -> None:
    office = Office(conversations=1)
    assert office.asks("terminated")
    assert not office.asks("b")
    free = office.ledger.next_wake(office.now)
    assert free == NOON + 900
    office.now = free - 1
    assert office.wakes() == []
    office.now = free
    assert office.wakes() == ["b"]


def test_one_that_takes_turns_keeps_its_place() -> None:
    office = Office(conversations=1)
    office.asks("a")
    office.now += 800
    office.spends("a", 1)
    office.now += 800
    assert not office.asks("b")


def test_what_another_conversation_asks_for_needs_no_place_of_its_own() -> None:
    office = Office(conversations=1)
    assert office.asks("a")
    assert office.asks("a.call", asked=True)  # or a would wait for it, and it for a


def test_who_was_resumed_and_has_not_asked_is_resumed_again_and_then_given_up() -> None:
    office = Office(conversations=1)
    office.asks("a")
    office.asks("b")
    office.spends("a", done=True)
    woken = []
    for _ in range(MOST_WAKES + 2):
        woken += office.wakes()
        office.now += WAKE_SECONDS
    assert woken == ["b"] * MOST_WAKES
    assert office.ledger.next_wake(office.now) is None
    assert office.asks("c")  # the place is free again


def test_a_batch_that_comes_twice_counts_once_and_is_answered_twice() -> None:
    office = Office(tokens_per_day=100)
    batch = (Spending(conversation="a", tokens=60), Spending(conversation="a", asks=True))
    assert office.says(*batch, number=1) == office.says(*batch, number=1)
    assert office.ledger.status(office.now).tokens == 60


def test_what_a_workers_settings_say_holds_unless_somebody_sets_another() -> None:
    ledger = Ledger(BudgetStart(tenant="acme", budget=BudgetTerms(tokens_per_day=1), declared=True))
    more = SpendingBatch(worker="w", number=1, declared=BudgetTerms(tokens_per_day=2))
    ledger.take_batch(more, now=NOON)
    assert ledger.terms.tokens_per_day == 2
    ledger.set_terms(BudgetTerms(tokens_per_day=3), set_by="ops")
    ledger.take_batch(more.model_copy(update={"number": 2}), now=NOON)
    assert ledger.terms.tokens_per_day == 3


def test_more_than_can_be_resumed_are_told_so_and_what_is_handed_on_fits() -> None:
    office = Office(conversations=1_000)
    worst = "\0" * 500
    for number in range(3_000):
        office.asks(f"{worst}{number}")
    assert len(office.ledger.waiting_ids) <= MOST_WAITING
    assert size_of(office.ledger.as_start()) < MAX_PAYLOAD_BYTES
    refused = office.says(Spending(conversation="one more" * 60_000 and worst, asks=True)).refused
    assert "everturn resume" in refused[0].cure


@settings(max_examples=60)
@given(
    most=st.integers(1, 3),
    moves=st.lists(st.tuples(st.sampled_from("asdw"), st.sampled_from("abcdef"), st.integers(0, 400)), max_size=60),
)
def test_no_more_than_the_budget_are_at_work_and_runs_hand_on_all_of_it(
    most: int, moves: list[tuple[str, str, int]]
) -> None:
    """a: asks, s: spends, d: has its final reply, w: time passes and whoever is due is resumed, and asks or is gone."""
    office, working = Office(conversations=most), set[str]()
    for move, name, seconds in moves:
        office.now += seconds / 100
        match move:
            case "a" if office.asks(name):
                working.add(name)
            case "s" if name in working:
                office.spends(name, 1)
            case "d" if name in working:
                office.spends(name, 1, done=True)
                working.discard(name)
            case "w":
                for wake in office.wakes():
                    assert office.asks(wake), "who is resumed has a place"
                    working.add(wake)
        assert len(working) <= most
        before = office.ledger
        office.ledger = Ledger(BudgetStart.model_validate_json(before.as_start().model_dump_json()))
        assert office.ledger.as_start() == before.as_start()
        assert office.ledger.next_wake(office.now) == before.next_wake(office.now)
    # Nobody waits for ever: one after the other has its place.
    for _ in range(40):
        for name in sorted(working):
            office.spends(name, done=True)
        working = set(office.wakes())
        for name in working:
            assert office.asks(name)
    assert office.ledger.waiting_ids == []


def test_budgets_are_read_from_the_settings() -> None:
    read = declared_budgets("acme=tokens:1000000+usd:50, a=b=usd:0.5,*=conversations:20")
    assert read["acme"] == BudgetTerms(tokens_per_day=1_000_000, usd_per_day=50.0)
    assert read["a=b"].usd_per_day == 0.5
    assert read["*"].conversations == 20
    assert declared_budgets("") == {}


@pytest.mark.parametrize(
    "wrong", ["acme", "acme=", "acme=5", "acme=tokens:x", "acme=tokens:0", "=usd:5", "acme=coins:5", "a=usd:1:2"]
)
def test_a_budget_that_is_none_is_refused_by_name(wrong: str) -> None:
    with pytest.raises(InvalidSetting, match=r"EVERTURN_TENANT_BUDGETS has|which is no tenant"):
        declared_budgets(wrong)


def untold(since: int, turns: int, *, run: str = "r") -> UnreportedSpending:
    return UnreportedSpending(since=since, run=run, turns=turns, tokens=10 * turns)


@pytest.mark.parametrize(
    ("reports", "turns"),
    [
        ([untold(1, 3), untold(1, 3)], 3),
        ([untold(1, 3), untold(1, 5)], 5),
        ([untold(1, 5), untold(1, 3), untold(1, 5)], 5),  # an earlier one that arrives after a later one
        ([untold(1, 3), untold(4, 2)], 5),
        ([untold(1, 3), untold(4, 2), untold(1, 3)], 5),
        ([untold(4, 2), untold(2, 1, run="after a reset")], 3),
    ],
)
def test_a_report_counts_only_what_no_other_has_told(reports: list[UnreportedSpending], turns: int) -> None:
    office = Office(tokens_per_day=1_000)
    for report in reports:
        office.says(Spending(conversation="a", untold=report))
    status = office.ledger.status(office.now)
    assert (status.turns, status.tokens) == (turns, 10 * turns)
