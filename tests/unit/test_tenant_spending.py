"""When workers ask a tenant's budget and what they tell it, with the budget as it is kept and no server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from everturn import Budget
from everturn.budgets.calls import NoAnswer
from everturn.budgets.ledger import UNTOLD_TURNS, Ledger
from everturn.budgets.records import BudgetNote, BudgetStart, BudgetTerms, SpendingAnswer, SpendingBatch
from everturn.budgets.spending import TenantSpending
from everturn.payloads import ModelReply
from everturn.records import Message, Usage
from tests.support.bounds import Bounds
from tests.support.waiting import eventually

MANY = 1_000_000


class Tenant:
    """A tenant's budget, its workers and its conversations. A conversation's note is what its history has."""

    declared = None
    tenant = "acme"

    def __init__(self, **terms: Any) -> None:
        self.ledger = Ledger(BudgetStart(tenant=self.tenant, budget=BudgetTerms.from_budget(Budget(**terms))))
        self.now = 20_000.5 * 86_400
        self.updates = 0
        self.silent = False
        self.notes: dict[str, BudgetNote | None] = {}
        self.turns: dict[str, int] = {}

    async def count_spending(self, batch: SpendingBatch) -> SpendingAnswer | None:
        if self.silent:
            raise NoAnswer("it is away")
        self.updates += 1
        return self.ledger.take_batch(batch, now=self.now)

    def worker(self) -> TenantSpending:
        return TenantSpending(self, worker=uuid4().hex)  # type: ignore[arg-type]

    async def turn(
        self,
        worker: TenantSpending,
        conversation: str = "a",
        *,
        tokens: int = 10,
        done: bool = False,
        attempt: int = 1,
        lost: bool = False,
    ) -> None:
        """A turn of the conversation on this worker. `lost`: the worker is killed before history has its reply."""
        number = self.turns.get(conversation, 0) + 1
        before = self.notes.get(conversation) or BudgetNote()

        async def run() -> BudgetNote | None:
            note = await worker.ask_for_turn(conversation, before, is_question=False)
            spent = ModelReply(message=Message.user(""), usage=Usage(output_tokens=tokens), cost_usd=0.0)
            return await worker.report_turn(conversation, note, number, spent, is_question=False, done=done)

        environment = ActivityEnvironment()
        environment.info = replace(environment.info, attempt=attempt, workflow_run_id="run")
        ran: Callable[[], Awaitable[BudgetNote | None]] = run
        note = await environment.run(ran)
        if not lost:
            self.turns[conversation], self.notes[conversation] = number, note

    @property
    def told(self) -> tuple[int, int]:
        status = self.ledger.status(self.now)
        return status.turns, status.tokens


@pytest.fixture(autouse=True)
def _at_once(bounds: Bounds) -> None:
    bounds(budget_pace_seconds=0.0, budget_again_seconds=0.01, budget_answer_seconds=0.2)


async def test_a_place_that_one_worker_gave_back_is_asked_for_again_by_every_other() -> None:
    tenant = Tenant(conversations=1)
    here, there = tenant.worker(), tenant.worker()
    await tenant.turn(here, "x")
    await tenant.turn(there, "x", done=True)
    await tenant.turn(there, "y")
    with pytest.raises(ApplicationError, match="conversations at work"):
        await tenant.turn(here, "x")
    await tenant.turn(there, "y", done=True)
    tenant.now += 60  # x was resumed, and is given up
    await tenant.turn(here, "x")


async def test_a_try_after_one_that_gave_the_place_back_asks_for_it_again() -> None:
    tenant = Tenant(conversations=1)
    here, there = tenant.worker(), tenant.worker()
    await tenant.turn(here, "x")
    await tenant.turn(here, "x", done=True, lost=True)
    await tenant.turn(there, "y")
    with pytest.raises(ApplicationError, match="conversations at work"):
        await tenant.turn(here, "x", done=True, attempt=2)


async def test_twenty_turns_in_one_answer_are_a_question_and_two_reports() -> None:
    tenant = Tenant(tokens_per_day=MANY, conversations=5)
    worker = tenant.worker()
    for number in range(20):
        await tenant.turn(worker, done=number == 19)
    assert tenant.updates == 3
    assert tenant.told == (20, 200)


@pytest.mark.parametrize(("terms", "updates"), [({"conversations": 5}, 20), ({"tokens_per_day": MANY}, 11)])
async def test_an_answer_asks_only_if_it_needs_a_place(terms: dict[str, Any], updates: int) -> None:
    tenant = Tenant(**terms)
    worker = tenant.worker()
    for number in range(20):
        await tenant.turn(worker, done=number % 2 == 1)
    assert tenant.updates == updates
    assert tenant.told == (20, 200)


async def test_what_a_killed_worker_had_not_told_is_told_by_the_next_turn_wherever_it_runs() -> None:
    tenant = Tenant(tokens_per_day=MANY)
    killed = tenant.worker()
    for _ in range(5):
        await tenant.turn(killed)
    assert tenant.told == (0, 0)
    await tenant.turn(tenant.worker(), done=True)
    assert tenant.told == (6, 60)


async def test_a_turn_that_was_told_and_lost_counts_once() -> None:
    tenant = Tenant(tokens_per_day=MANY)
    for _ in range(3):
        await tenant.turn(tenant.worker())
    await tenant.turn(tenant.worker(), done=True, lost=True)
    await tenant.turn(tenant.worker(), done=True, attempt=2)
    assert tenant.told == (4, 40)


async def test_nearer_to_the_limit_each_turn_tells() -> None:
    tenant = Tenant(tokens_per_day=1_000)
    worker = tenant.worker()
    for _ in range(100):
        await tenant.turn(worker)
    assert tenant.told == (100, 1_000)
    with pytest.raises(ApplicationError, match="has used 1,000 tokens today"):
        await tenant.turn(worker)


async def test_many_conversations_at_once_pass_the_limit_by_a_tenth_and_a_turn_each_at_most() -> None:
    tenant = Tenant(tokens_per_day=10_000)
    workers = [tenant.worker() for _ in range(4)]
    refused = set[str]()
    for step in range(400):
        for number in range(20):
            name = f"c{number}"
            try:
                if name not in refused:
                    await tenant.turn(workers[(step + number) % 4], name)
            except ApplicationError:
                refused.add(name)
    spent = 10 * sum(tenant.turns.values())
    assert len(refused) == 20
    assert 10_000 <= spent <= 10_000 * 1.1 + 20 * 10


async def test_a_budget_that_does_not_answer_is_told_later_and_once() -> None:
    tenant = Tenant(tokens_per_day=MANY)
    worker = tenant.worker()
    await tenant.turn(worker)
    tenant.silent = True
    await tenant.turn(worker, done=True)
    tenant.silent = False
    await eventually(lambda: tenant.told == (2, 20))
    await tenant.turn(tenant.worker(), done=True)  # its history does not say that the first two were told
    assert tenant.told == (3, 30)


async def test_a_conversation_that_takes_no_turn_any_more_is_told_late_and_keeps_no_place(bounds: Bounds) -> None:
    bounds(budget_late_seconds=0.05)
    tenant = Tenant(tokens_per_day=MANY, conversations=1)
    worker = tenant.worker()
    await tenant.turn(worker)
    tenant.now += 800
    await eventually(lambda: tenant.told == (1, 10))
    tenant.now += 101
    assert tenant.ledger.status(tenant.now).at_work == 0
    await tenant.turn(tenant.worker(), attempt=2)  # it was only slow
    assert tenant.told == (1, 10)
    for _ in range(UNTOLD_TURNS):
        await tenant.turn(worker)
    assert tenant.told[0] >= UNTOLD_TURNS
    await worker.close()
