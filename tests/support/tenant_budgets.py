"""Tenants' budgets in tests: one that nobody else has, what it holds, and real worker processes that ask it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from temporalio.client import WorkflowHandle
from temporalio.worker import Replayer

from everturn import Client
from everturn.budgets.by_history import kept_budget
from everturn.budgets.records import BudgetStart, BudgetStatus
from everturn.budgets.workflow import TenantBudgetWorkflow
from everturn.storage.data_converter import data_converter
from everturn.tenants.priorities import budget_id
from everturn.testing import ScriptedModel
from tests.support.prepared import Program, killed_at_the_end
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]

WORKER = """
import asyncio, os, signal, sys
from everturn import Agent, Client, Model, Worker
from everturn.budgets import moves

address, task_queue, model, *dies = sys.argv[1:]

async def dying(*_):
    os.kill(os.getpid(), signal.SIGKILL)

async def main():
    if dies:
        moves.go_on_here = dying
    client = await Client.connect(address, task_queue=task_queue)
    await Worker(client, agents=[Agent("clerk", model=Model("scripted:demo", base_url=model))]).run()

asyncio.run(main())
"""


@asynccontextmanager
async def worker_process(client: Client, model: ScriptedModel, *, dies_moving: bool = False) -> AsyncIterator[Program]:
    """A worker with the bounds as they are, killed at the end. `dies_moving`: it kills itself once it has ended a
    budget that moves, and before it starts it again."""
    address = client.temporal.service_client.config.target_host
    with killed_at_the_end(
        "-c", WORKER, address, client.task_queue, model.base_url, *(["dies"] * dies_moving)
    ) as process:
        yield process


def budget_of(client: Client, tenant: str) -> WorkflowHandle[Any, Any]:
    return client.temporal.get_workflow_handle(budget_id(tenant, encoded=False))


async def spent(client: Client, tenant: str) -> BudgetStatus:
    found = await client.budget(tenant)
    assert found is not None
    return found


async def eventually_none(client: Client, tenant: str) -> bool:
    async def gone() -> bool:
        return await client.budget(tenant) is None

    return bool(await eventually(gone))


async def replays(client: Client, tenant: str) -> None:
    """Replays the runs of a budget, and compares what each handed on with what its history says."""
    replayer = Replayer(workflows=[TenantBudgetWorkflow], data_converter=data_converter)
    handle = budget_of(client, tenant)
    run_id: str | None = (await handle.describe()).run_id
    after: BudgetStart | None = None
    while run_id:
        run = client.temporal.get_workflow_handle(handle.id, run_id=run_id)
        history = await run.fetch_history()
        await replayer.replay_workflow(history)
        kept = await kept_budget(client.temporal, handle.id, run_id=run_id)
        assert kept is not None
        if after:  # the history says what the workflow handed on
            carried = kept.ledger.as_start()
            for field in ("budget", "day", "tokens", "cost_usd", "turns", "counted", "reported"):
                assert getattr(carried, field) == getattr(after, field)
        began = history.events[0].workflow_execution_started_event_attributes
        run_id = began.continued_execution_run_id
        [after] = await client.temporal.data_converter.decode(began.input.payloads, [BudgetStart])
