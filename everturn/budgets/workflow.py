"""A tenant's budget: a workflow that workers ask before a conversation's turn, and tell what turns have spent.

It resumes by itself what is stalled for it: once a place is free, the day is new, or the budget larger.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError, TemporalError

from everturn import names
from everturn.budgets.ledger import Ledger
from everturn.budgets.records import BudgetStart, BudgetTerms, SetBudget, SpendingBatch
from everturn.payloads import Control
from everturn.validation.explaining import explain
from everturn.workflows import continue_as_new, message_dispatch


# The sandbox guards user code from itself, and there is none in this workflow: test_determinism.py.
@workflow.defn(name=names.TENANT_BUDGET, sandboxed=False)
class TenantBudgetWorkflow:
    @workflow.init
    def __init__(self, *inputs: Any) -> None:
        start, self._problem = message_dispatch.read_start(BudgetStart, inputs)
        self._ledger = Ledger(start or BudgetStart(tenant="", budget=BudgetTerms()))
        self._changed = True
        self._removed = False
        self._updates = 0
        self._alarm: tuple[float, asyncio.Task[None]] | None = None
        """When somebody is to be resumed, if nothing comes before."""

    @workflow.run
    async def run(self, *_: Any) -> None:
        if self._problem:
            raise message_dispatch.invalid_start(f"This budget can't be kept: {self._problem}")
        while not self._removed:
            await workflow.wait_condition(lambda: self._changed or self._is_long)
            self._changed = False
            now = workflow.time()
            await self._resume_all(self._ledger.wake_waiting(now))
            if not self._changed:
                self._set_alarm(self._ledger.next_wake(now))
            if self._is_long and not self._removed:
                continue_as_new.begin_next_run(self._ledger.as_start().model_dump(mode="json"))
        await self._resume_all(self._ledger.waiting_ids)

    @property
    def _is_long(self) -> bool:
        return continue_as_new.is_due(updates=self._updates, full=False)

    async def _resume_all(self, conversations: list[str]) -> None:
        """Tells stalled conversations to ask again. One that is over gives its place to the next."""
        await asyncio.gather(*map(self._resume_one, conversations))

    async def _resume_one(self, conversation_id: str) -> None:
        control = Control(by="its tenant's budget", only_stalled=True)
        handle = workflow.get_external_workflow_handle(conversation_id)
        try:
            await handle.signal(names.RESUME, control.model_dump(mode="json", exclude_defaults=True))
        except TemporalError:
            self._ledger.forget(conversation_id)
            self._changed = True

    def _set_alarm(self, wake_at: float | None) -> None:
        if wake_at is None or (self._alarm and self._alarm[0] <= wake_at):
            return  # one that rings too early does no harm
        if self._alarm:
            self._alarm[1].cancel()
        self._alarm = wake_at, asyncio.create_task(self._ring_at(wake_at))

    async def _ring_at(self, wake_at: float) -> None:
        with suppress(asyncio.CancelledError):
            await workflow.sleep(
                timedelta(seconds=max(0.001, wake_at - workflow.time())), summary="until somebody goes on"
            )
            self._changed = True
            self._alarm = None

    # ------------------------------------------------------------ what others say and see

    @workflow.update(name=names.COUNT_SPENDING, description="What a worker's turns have spent, and which may begin.")
    def count_spending(self, *inputs: Any) -> dict[str, Any]:
        try:
            batch = message_dispatch.read_input(SpendingBatch, inputs)
        except ValueError as error:
            raise ApplicationError(explain(error), type=names.REFUSED, non_retryable=True) from error
        self._updates += 1
        self._changed = True
        return self._ledger.take_batch(batch, now=workflow.time()).model_dump(mode="json")

    @workflow.signal(name=names.SET_BUDGET, description='Sets the budget: {"budget": {"tokens_per_day": 1000000}}.')
    def set_budget(self, *inputs: Any) -> None:
        change = message_dispatch.read_signal(SetBudget, names.SET_BUDGET, inputs)
        if change is None:
            return
        self._changed = True
        self._removed = change.budget is None
        self._ledger.set_terms(
            change.budget or BudgetTerms(), set_by=change.by
        )  # until it is gone, it allows everything

    @workflow.query(name=names.BUDGET, description="The tenant's budget, and what is spent of it.")
    def budget(self, *_: Any) -> dict[str, Any]:
        return self._ledger.status(workflow.time()).as_json()
