"""A budget whose task queue has no worker any more moves to a worker that asks it, with all that was counted."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable
from datetime import timedelta

import pytest
from temporalio.client import WorkflowExecutionStatus

from everturn import Budget, Client, names
from everturn.budgets.by_history import kept_budget
from everturn.budgets.moves import move_here
from everturn.client.pollers import find_pollers
from everturn.tenants.priorities import budget_id
from everturn.testing import ScriptedModel, slow
from tests.support.agents import agent_on, hosting
from tests.support.tenant_budgets import budget_of, eventually_none, spent, worker_process
from tests.support.waiting import eventually, reaches

Scripted = Callable[..., ScriptedModel]

MOVES_WITHIN = 300.0
"""Seconds. Temporal and the workers' heartbeats show a kill after 75 to 120 s."""


async def test_a_budget_moves_to_who_asks_once_the_workers_of_its_task_queue_are_gone(
    client: Client, scripted: Scripted, tenant: str
) -> None:
    agent = agent_on(scripted(lambda messages: "Hello."))
    elsewhere = Client(client.temporal, task_queue=f"gone-{client.task_queue}")
    await elsewhere.set_budget(tenant, Budget(tokens_per_day=1_000_000, conversations=3))
    tokens = 0
    async with hosting(elsewhere, agent):
        for _ in range(3):
            tokens += (await elsewhere.run(agent, "Hi", tenant=tenant)).usage.total_tokens
        idle = await elsewhere.start(agent, "Hi", tenant=tenant, keep_open=timedelta(minutes=5))
        await idle.reply()
        before = await spent(elsewhere, tenant)
    assert await spent(client, tenant) == before  # by its history: no worker answers
    async with hosting(client, agent):  # nobody works on the other task queue
        outcomes = await asyncio.gather(*(client.run(agent, "Hi", tenant=tenant) for _ in range(3)))
        used = await spent(client, tenant)
        await client.set_budget(tenant, Budget(tokens_per_day=1))  # whoever sets it finds it here
        status = await reaches(await client.start(agent, "Hi", tenant=tenant), "stalled")
        assert "may use 1." in str(status.cause)
    assert (await budget_of(client, tenant).describe()).task_queue == client.task_queue
    assert used.turns == before.turns + 3 == 7
    assert used.tokens == before.tokens + sum(outcome.usage.total_tokens for outcome in outcomes)
    assert before.tokens > tokens


async def test_a_move_whose_worker_was_killed_in_the_middle_is_finished_by_the_next_that_asks(
    client: Client, scripted: Scripted, tenant: str
) -> None:
    agent = agent_on(scripted(lambda messages: "Hello."))
    elsewhere = Client(client.temporal, task_queue=f"gone-{client.task_queue}")
    await elsewhere.set_budget(tenant, Budget(tokens_per_day=1))
    async with hosting(elsewhere, agent):
        await elsewhere.run(agent, "Hi", tenant=tenant)
    # What a worker does that is killed before it has started it again.
    await budget_of(client, tenant).terminate(names.BUDGET_MOVES, reason="It moves.")
    async with hosting(client, agent):
        second = await client.start(agent, "Hi", tenant=tenant)
        await reaches(second, "stalled")  # what was spent stays spent
        assert (await spent(client, tenant)).turns == 1
        await client.set_budget(tenant, None)  # and one that was taken away does not come back
        assert (await second.outcome()).text == "Hello."
        assert await eventually_none(client, tenant)
        assert (await client.run(agent, "Hi", tenant=tenant)).text == "Hello."
    assert await client.budget(tenant) is None


async def test_workers_that_move_a_budget_at_the_same_time_move_it_once(
    client: Client, scripted: Scripted, tenant: str
) -> None:
    agent = agent_on(scripted(lambda messages: "Hello."))
    gone = Client(client.temporal, task_queue=f"gone-{client.task_queue}")
    await gone.set_budget(tenant, Budget(tokens_per_day=1_000_000))
    others = [Client(client.temporal, task_queue=f"{n}-{client.task_queue}") for n in range(2)]
    async with hosting(others[0], agent), hosting(others[1], agent):
        where = [other.task_queue for other in others]
        name = budget_id(tenant, encoded=False)
        moved = await asyncio.gather(*(move_here(client.temporal, name, to, pollers=find_pollers) for to in where * 3))
        assert any(moved)
        for other in others:
            await other.run(agent, "Hi", tenant=tenant)
        assert (await spent(client, tenant)).turns == 2
    assert (await budget_of(client, tenant).describe()).task_queue in where


async def test_a_budget_stays_where_a_worker_polls(client: Client, scripted: Scripted, tenant: str) -> None:
    agent = agent_on(scripted(lambda messages: "Hello."))
    await client.set_budget(tenant, Budget(tokens_per_day=1_000_000))
    async with hosting(client, agent):
        await eventually(lambda: find_pollers(client.temporal, client.task_queue))
        name = budget_id(tenant, encoded=False)
        assert not await move_here(client.temporal, name, "another", pollers=find_pollers)
        await client.run(agent, "Hi", tenant=tenant)
    assert (await budget_of(client, tenant).describe()).task_queue == client.task_queue


@pytest.mark.long
async def test_workers_are_killed_and_whoever_moves_their_budget_is_killed_too_and_nothing_is_lost_or_counted_twice(
    client: Client, scripted: Scripted, tenant: str
) -> None:
    go_on = threading.Event()
    model = scripted([*["Hello."] * 3, slow("Never.", until=go_on), *["Hello."] * 9], order="arrival")
    agent, outcomes = agent_on(model), []
    gone = Client(client.temporal, task_queue=f"gone-{client.task_queue}")
    await gone.set_budget(tenant, Budget(tokens_per_day=1_000_000, conversations=9))
    try:
        async with worker_process(gone, model), worker_process(gone, model):
            outcomes += [await gone.run(agent, "Hi", tenant=tenant) for _ in range(3)]
            killed = await gone.start(agent, "Hi", tenant=tenant)
            await eventually(lambda: len(model.requests) == 4)
            before = await spent(client, tenant)
    finally:
        go_on.set()
    old = await budget_of(client, tenant).describe()
    async with worker_process(client, model, dies_moving=True) as mover:
        first = await client.start(agent, "Hi", tenant=tenant)
        # Meanwhile the turn waits, and says for what; nobody asked the model.
        await eventually(lambda: says_silent(client, first.id))
        await eventually(lambda: mover.poll() is not None, seconds=MOVES_WITHIN, what="the budget moves")
        assert mover.returncode == -signal.SIGKILL
    assert len(model.requests) == 4
    between = await budget_of(client, tenant).describe()
    assert (between.run_id, between.status) == (old.run_id, WorkflowExecutionStatus.TERMINATED)
    kept = await kept_budget(client.temporal, old.id, run_id=old.run_id)
    assert kept is not None
    left = kept.ledger.as_start()
    assert (kept.moves, left.turns, left.tokens) == (True, before.turns, before.tokens)

    async with worker_process(client, model), worker_process(client, model):
        outcomes.append(await asyncio.wait_for(first.outcome(), MOVES_WITHIN))
        outcomes += await asyncio.gather(*(client.run(agent, "Hi", tenant=tenant) for _ in range(3)))
        # The old task queue's own conversation goes on, once it has a worker again: it asks the budget where that is.
        async with worker_process(gone, model):
            outcomes.append(await killed.outcome())
        used = await spent(client, tenant)
    now = await budget_of(client, tenant).describe()
    assert (now.task_queue, now.status) == (client.task_queue, WorkflowExecutionStatus.RUNNING)
    assert (used.turns, used.tokens) == (8, sum(outcome.usage.total_tokens for outcome in outcomes))
    assert (used.at_work, used.waiting) == (0, 0)


async def says_silent(client: Client, conversation_id: str) -> bool:
    described = await client.temporal.get_workflow_handle(conversation_id).describe()
    pending = described.raw_description.pending_activities
    return any("does not answer" in entry.last_failure.message for entry in pending)
