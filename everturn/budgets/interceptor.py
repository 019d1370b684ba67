"""How a worker's model turns use the budget of their tenant: they ask it before a turn, and report to it afterwards.

A conversation without a tenant costs nothing. One whose tenant has no budget costs a request now and then, and no event
in a history.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final
from uuid import uuid4

from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from everturn import names
from everturn.budgets import moves
from everturn.budgets.calls import BudgetCalls
from everturn.budgets.records import BudgetNote, BudgetTerms
from everturn.budgets.spending import TenantSpending
from everturn.heartbeats.heartbeat import is_unwanted
from everturn.payloads import ModelReply, ModelRequest
from everturn.tenants.priorities import budget_id

MOST_TENANTS: Final = 10_000

EVERYBODY: Final = "*"


class TenantBudgets(Interceptor):
    """One for each worker. `declared`: the budgets that its settings declare, by tenant."""

    def __init__(
        self, client: Client, *, task_queue: str, declared: Mapping[str, BudgetTerms], pollers: moves.Pollers
    ) -> None:
        self._client = client
        self._pollers = pollers
        self._task_queue = task_queue
        self._declared = declared
        self._worker = uuid4().hex
        self._tenants: dict[str, TenantSpending] = {}

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002
        if activity.info().activity_type != names.CALL_MODEL:
            return next
        return _BudgetedActivities(next, self)

    def spending_of(self, tenant: str) -> TenantSpending:
        spending = self._tenants.pop(tenant, None)
        if spending is None:
            encoded = self._client.data_converter.payload_codec is not None
            declared = self._declared.get(tenant) or self._declared.get(EVERYBODY)
            name = budget_id(tenant, encoded=encoded)
            calls = BudgetCalls(self._client, tenant, name, self._task_queue, declared, self._pollers)
            spending = TenantSpending(calls, worker=f"{self._worker}:{uuid4().hex[:6]}")
        self._tenants[tenant] = spending  # as the last one
        if len(self._tenants) > MOST_TENANTS:
            idle = next((name for name, other in self._tenants.items() if not other.is_busy), None)
            if idle not in (None, tenant):
                del self._tenants[idle]
        return spending

    async def close(self) -> None:
        """What was not told by now, the conversations' next turns tell, wherever they run."""
        for tenant in self._tenants.values():
            await tenant.close()


class _BudgetedActivities(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, budgets: TenantBudgets) -> None:  # noqa: A002
        super().__init__(next)
        self._budgets = budgets

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002
        request = next(iter(input.args), None)
        if not isinstance(request, ModelRequest) or not request.tenant:
            return await self.next.execute_activity(input)
        conversation = activity.info().workflow_id or ""
        is_question = request.asked
        budget = self._budgets.spending_of(request.tenant)
        note = request.budget or BudgetNote()
        if not _is_paid(request):
            note = await budget.ask_for_turn(conversation, note, is_question=is_question)
        try:
            reply = await self.next.execute_activity(input)
        except ApplicationError as error:
            if error.type == names.BATCHED:
                budget.leave_turn(conversation, note)
            raise
        except asyncio.CancelledError:
            if is_unwanted():
                budget.leave_turn(conversation, note)
            raise
        if not isinstance(reply, ModelReply):
            return reply
        # A summary comes in the middle of an answer, however final it looks. A reply that was cut short ends it.
        done = (reply.ends_answer or reply.message.cut_short) and not request.summarise
        note_after = await budget.report_turn(
            conversation, note, request.turn, reply, is_question=is_question, done=done
        )
        return reply.model_copy(update={"budget": note_after})


def _is_paid(request: ModelRequest) -> bool:
    """Its reply is in a batch that is over: it is read, however little is left of the budget."""
    return request.batch is not None and request.batch.state == "ended"
