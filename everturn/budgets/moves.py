"""A tenant's budget whose task queue has no worker any more moves to the task queue of a worker that asks it.

Its workflow is ended with a mark that it moves, and a new run goes on from its history. That history is final by then,
so nothing that was counted is lost. If a worker is killed between the two steps, the mark stays, and the next worker
that asks does the second step. Decision 0050.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Any

from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.service import RPCError

from everturn import names
from everturn.budgets.by_history import kept_budget
from everturn.logs import get_logger
from everturn.temporal.any_status import describe, is_over
from everturn.temporal.task_timeout import TASK_TIMEOUT
from everturn.temporal.temporal_errors import not_found

Pollers = Callable[[Client, str], Awaitable[Collection[Any]]]
"""Who polls a task queue for workflow tasks."""

_log = get_logger("everturn.budget")


async def move_here(client: Client, budget_id: str, task_queue: str, *, pollers: Pollers) -> bool:
    """Moves a budget that does not answer to this task queue, if no worker polls its own. Returns whether it moved;
    also if another worker was quicker. Raises RPCError, InvalidSetting and Unreachable."""
    described = await describe(client, budget_id)
    if is_over(described):
        return await go_on_here(client, budget_id, task_queue)
    if described.task_queue == task_queue or await pollers(client, described.task_queue):
        return False  # somebody there will answer, or is about to
    if await kept_budget(client, budget_id, run_id=described.run_id) is None:
        return False  # it could not go on
    running = client.get_workflow_handle(budget_id, run_id=described.run_id)
    try:
        reason = f"It moves to {task_queue}: no worker runs on {described.task_queue}."
        await running.terminate(names.BUDGET_MOVES, reason=reason)
    except RPCError as error:
        if not not_found(error):
            raise
    _log.info("budget.moved", budget=budget_id, old_task_queue=described.task_queue, task_queue=task_queue)
    return await go_on_here(client, budget_id, task_queue)


async def go_on_here(client: Client, budget_id: str, task_queue: str) -> bool:
    """Starts a budget again here if it was ended to move. False if it was not started: it is over, or goes on already.
    Raises RPCError and InvalidSetting."""
    run_id = (await describe(client, budget_id)).run_id
    kept = await kept_budget(client, budget_id, run_id=run_id)
    if kept is None or not kept.moves or kept.removed:
        return False
    await client.start_workflow(
        names.TENANT_BUDGET,
        kept.ledger.as_start().model_dump(mode="json"),
        id=budget_id,
        task_queue=task_queue,
        task_timeout=TASK_TIMEOUT,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
    )
    return True
