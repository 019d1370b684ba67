"""Sets, removes and shows the budgets of tenants."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

from temporalio.common import WorkflowIDConflictPolicy
from temporalio.service import RPCError

from everturn import names
from everturn.budgets.by_history import kept_budget
from everturn.budgets.records import BudgetStart, BudgetStatus, BudgetTerms, SetBudget
from everturn.client.client_base import ClientBase
from everturn.client.pollers import find_pollers
from everturn.errors import InvalidSetting, OtherWorkflow, Unreachable
from everturn.limits import Budget
from everturn.sizes import MAX_NAME_CHARS
from everturn.temporal import temporal_errors
from everturn.temporal.any_status import held_up, is_over
from everturn.temporal.task_timeout import TASK_TIMEOUT
from everturn.tenants.priorities import budget_id
from everturn.text.utf8 import check_utf8


class BudgetingClient(ClientBase):
    """The part of a client that is about tenants' budgets."""

    async def set_budget(self, tenant: str, budget: Budget | None) -> None:
        """Sets what the tenant's conversations may use, in place of what was set before; None takes the budget away.
        What was spent stays spent. After some seconds, the new budget also holds for running conversations, and
        those that the old one has stalled go on by themselves, if a worker of its task queue runs. The call itself
        needs no worker. Raises InvalidSetting, Unreachable, and OtherWorkflow if another workflow has the budget's
        id."""
        if budget is not None and not isinstance(budget, Budget):
            raise InvalidSetting(
                f"The budget of {tenant!r:.100} is {budget!r:.100}.", cure="Give a Budget, or None for no budget."
            )
        workflow_id = self._budget_id(tenant)
        terms = BudgetTerms.from_budget(budget) if budget else None
        payload = SetBudget(budget=terms, by=self.by).model_dump(mode="json")
        try:
            await self._check_may_be_set(tenant, workflow_id)
            if budget is None:
                handle = self.temporal.get_workflow_handle(workflow_id)
                await handle.signal(names.SET_BUDGET, payload)
                if not await find_pollers(self.temporal, (await handle.describe()).task_queue):
                    # Nobody takes the signal, and the tenant's turns on other task queues would wait for an answer.
                    await handle.terminate(reason="The budget was taken away, and no worker of its task queue runs.")
                return
            start = BudgetStart(tenant=tenant, budget=BudgetTerms.from_budget(budget), by=self.by)
            await self.temporal.start_workflow(
                names.TENANT_BUDGET,
                start.model_dump(mode="json"),
                id=workflow_id,
                task_queue=self.task_queue,
                task_timeout=TASK_TIMEOUT,
                start_signal=names.SET_BUDGET,
                start_signal_args=[payload],
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            )
        except RPCError as error:
            if budget is not None or not temporal_errors.not_found(error):
                raise self.unreachable_error(error) from error

    async def budget(self, tenant: str) -> BudgetStatus | None:
        """The tenant's budget, and how much of it is spent today; None if it has none. Read from its history if no
        worker of its task queue runs, or if an operator has paused it. Raises Unreachable, also if a worker runs but
        does not answer."""
        workflow_id = self._budget_id(tenant)
        handle = self.temporal.get_workflow_handle(workflow_id)
        seconds = temporal_errors.WORKER_TIMEOUT_SECONDS
        try:
            described = await handle.describe()
            if described.workflow_type != names.TENANT_BUDGET:
                return None
            is_closed = described.close_time is not None
            if is_closed or held_up(described) or not await find_pollers(self.temporal, described.task_queue):
                kept = await kept_budget(self.temporal, workflow_id, run_id=described.run_id)
                is_over = kept is None or kept.removed or (is_closed and not kept.moves)
                return None if kept is None or is_over else kept.ledger.status(time.time())
            answer = await handle.query(names.BUDGET, rpc_timeout=timedelta(seconds=seconds))
        except RPCError as error:
            if temporal_errors.not_found(error):
                return None
            if temporal_errors.unanswered(error):
                raise Unreachable(
                    f"The budget of {tenant!r} does not answer within {seconds:g} s.",
                    cure="Read the log of the workers of its task queue.",
                ) from error
            raise self.unreachable_error(error) from error
        status = BudgetStatus.model_validate(answer)
        return _as_of_today(status, datetime.now(UTC).date().isoformat())

    async def _check_may_be_set(self, tenant: str, workflow_id: str) -> None:
        """Raises OtherWorkflow if something else runs under the budget's id: it would take the signal and set nothing.
        Nothing of everturn's starts such a workflow; a program of somebody's may have. Raises Unreachable if an
        operator has paused the budget, which would set nothing until it goes on."""
        try:
            described = await self.temporal.get_workflow_handle(workflow_id).describe()
        except RPCError as error:
            if not temporal_errors.not_found(error):
                raise
            return
        if held := held_up(described):
            raise Unreachable(f"The budget of {tenant!r:.100} can't be set: {held[0]}", cure=held[1])
        if described.workflow_type != names.TENANT_BUDGET and not is_over(described):
            raise OtherWorkflow(
                f"The budget of {tenant!r:.100} can't be set: a workflow of type {described.workflow_type!r} has its "
                f"id, {workflow_id!r:.200}.",
                cure="End that workflow, and set the budget again.",
            )

    def _budget_id(self, tenant: str) -> str:
        if not tenant or not isinstance(tenant, str) or len(tenant) > MAX_NAME_CHARS:
            raise InvalidSetting(
                f"{tenant!r:.100} is no tenant.", cure=f"Give a name of 1 to {MAX_NAME_CHARS} characters."
            )
        encoded = self.temporal.data_converter.payload_codec is not None
        return budget_id(check_utf8("tenant", tenant), encoded=encoded)


def _as_of_today(status: BudgetStatus, today: str) -> BudgetStatus:
    """The status is as it was when the budget last heard of anything."""
    changes: dict[str, Any] = {}
    if status.day != today:
        changes |= {"day": today, "turns": 0, "tokens": 0, "cost_usd": 0.0, "unpriced_turns": 0}
    if status.month and status.month != (month := today[:7]):
        changes |= {"month": month, "tokens_this_month": 0, "cost_usd_this_month": 0.0}
    return status.model_copy(update=changes)
