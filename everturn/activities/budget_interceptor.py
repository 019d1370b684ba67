"""How a worker's model turns use the budget of their tenant: they ask it before a turn, and report to it afterwards.

A worker asks once for each conversation, and again if the tenant is over budget or half of the lease is over. Questions
and reports go in batches, one at a time and a few a second, however many turns there are. A conversation without a
tenant costs nothing. One whose tenant has no budget costs a request now and then, and no event in a history.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final
from uuid import uuid4

from temporalio import activity
from temporalio.client import (
    Client,
    WorkflowExecutionStatus,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from everturn import names
from everturn.activities import budget_moves
from everturn.activities.patience import retry_delay, spend
from everturn.errors import EverturnError
from everturn.logs import get_logger
from everturn.payloads import ModelReply, ModelRequest
from everturn.temporal import temporal_errors
from everturn.temporal.task_timeout import TASK_TIMEOUT
from everturn.tenants.budgets import BudgetStart, Refusal, Spending, SpendingAnswer, SpendingBatch, Terms
from everturn.tenants.priorities import budget_id
from everturn.validation.explaining import explain

LOOK_AGAIN_SECONDS: Final = 10.0
"""How long no budget is looked for after a tenant was found to have none."""

ANSWER_SECONDS: Final = 4.0
"""How long a turn waits for its budget. It sends no heartbeats meanwhile, so this is less than the silence after which
an activity counts as lost."""

PACE_SECONDS: Final = 0.25
"""Between two batches of a tenant."""

AGAIN_SECONDS: Final = 1.0
"""How soon a batch that was not answered is sent again."""

MOST_ITEMS: Final = 50
"""In a batch."""

MOST_TENANTS: Final = 10_000
MOST_LEASES: Final = 10_000

PATIENCE: Final = timedelta(minutes=30)
"""How long a budget may fail to answer before the conversation stalls."""

EVERYBODY: Final = "*"

_log = get_logger("everturn.budget")


class TenantBudgets(Interceptor):
    """One for each worker. `declared`: the budgets that its settings declare, by tenant."""

    def __init__(
        self, client: Client, *, task_queue: str, declared: Mapping[str, Terms], pollers: budget_moves.Pollers
    ) -> None:
        self._client = client
        self._pollers = pollers
        self._task_queue = task_queue
        self._declared = declared
        self._worker = uuid4().hex
        self._tenants: dict[str, _Tenant] = {}

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002
        return _Budgeted(next, self) if activity.info().activity_type == names.CALL_MODEL else next

    def of(self, tenant: str) -> _Tenant:
        found = self._tenants.pop(tenant, None)
        if found is None:
            encoded = self._client.data_converter.payload_codec is not None
            declared = self._declared.get(tenant) or self._declared.get(EVERYBODY)
            name = budget_id(tenant, encoded=encoded)
            workflow = _Budget(self._client, tenant, name, self._task_queue, declared, self._pollers)
            found = _Tenant(workflow, worker=f"{self._worker}:{uuid4().hex[:6]}")
        self._tenants[tenant] = found  # as the last one
        if len(self._tenants) > MOST_TENANTS:
            idle = next((name for name, one in self._tenants.items() if not one.speaks), None)
            if idle not in (None, tenant):
                del self._tenants[idle]
        return found

    async def close(self) -> None:
        """Reports that were not sent by now are lost: turns have waited for them as long as they could."""
        for tenant in self._tenants.values():
            await tenant.close()


class _Budgeted(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, budgets: TenantBudgets) -> None:  # noqa: A002
        super().__init__(next)
        self._budgets = budgets

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002
        request = input.args[0] if input.args else None
        if not isinstance(request, ModelRequest) or not request.tenant:
            return await self.next.execute_activity(input)
        conversation = activity.info().workflow_id or ""
        budget = self._budgets.of(request.tenant)
        await budget.ask(conversation, asked=request.asked)
        reply = await self.next.execute_activity(input)
        if isinstance(reply, ModelReply):
            # A summary comes in the middle of an answer, however final it looks.
            await budget.tell(conversation, reply, done=reply.ends_answer and not request.summarise)
        return reply


class _Budget:
    """The workflow that keeps a tenant's budget."""

    def __init__(
        self,
        client: Client,
        tenant: str,
        name: str,
        task_queue: str,
        declared: Terms | None,
        pollers: budget_moves.Pollers,
    ) -> None:
        self._client = client
        self.tenant = tenant
        self._id = name
        self._task_queue = task_queue
        self.declared = declared
        self._pollers = pollers

    async def count(self, batch: SpendingBatch) -> SpendingAnswer | None:
        """The budget's answer; None if there is no such budget. Raises _NoAnswer."""
        try:
            try:
                return await self._count(batch)
            except RPCError as error:
                if error.status is not RPCStatusCode.NOT_FOUND:
                    raise
                closed_first = temporal_errors.run_closed_first(error)
                over = temporal_errors.over(error) or closed_first
            # Its run closed with the question in it. The server says so to each further one of that id, so it has to be
            # known whether there is a next run.
            if closed_first and await self._runs():
                return await self._count(batch)
            if over and await budget_moves.go_on_here(self._client, self._id, self._task_queue):
                return await self._count(batch)
            if self.declared is None:
                return None
            await self._start(self.declared)
            return await self._count(batch)
        except WorkflowUpdateFailedError as error:
            cause = error.cause
            raise _NoAnswer(getattr(cause, "message", "") or str(cause)) from error
        except WorkflowUpdateRPCTimeoutOrCancelledError as error:
            if isinstance(error.__cause__, asyncio.CancelledError):
                raise error.__cause__ from None
            where = self._client, self._id, self._task_queue
            moved = await _explained(budget_moves.move_here(*where, pollers=self._pollers))
            raise _NoAnswer("it moves here" if moved else "no worker took the question in time") from error
        except RPCError as error:
            raise _NoAnswer(error.message) from error
        except ValueError as error:  # codecs raise all kinds, and the answer may be another version's
            raise _NoAnswer(explain(error)) from error

    async def _count(self, batch: SpendingBatch) -> SpendingAnswer:
        answer = await self._client.get_workflow_handle(self._id).execute_update(
            names.COUNT_SPENDING,
            batch.model_dump(mode="json"),
            id=f"{batch.worker}-{batch.number}",
            rpc_timeout=timedelta(seconds=ANSWER_SECONDS),
        )
        return SpendingAnswer.model_validate(answer)

    async def _runs(self) -> bool:
        described = await self._client.get_workflow_handle(self._id).describe()
        return described.status is WorkflowExecutionStatus.RUNNING

    async def _start(self, terms: Terms) -> None:
        await self._client.start_workflow(
            names.TENANT_BUDGET,
            BudgetStart(tenant=self.tenant, budget=terms, declared=True).model_dump(mode="json"),
            id=self._id,
            task_queue=self._task_queue,
            task_timeout=TASK_TIMEOUT,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            rpc_timeout=timedelta(seconds=ANSWER_SECONDS),
        )


class _NoAnswer(Exception):
    """The budget did not answer; the message says why."""


async def _explained(asked: Coroutine[Any, Any, bool]) -> bool:
    """What `asked` returns. Raises _NoAnswer if it fails."""
    try:
        return await asked
    except RPCError as error:
        raise _NoAnswer(error.message) from error
    except EverturnError as error:
        raise _NoAnswer(str(error)) from error


class _Tenant:
    """What a worker knows of a tenant's budget, and what it has yet to send to it."""

    def __init__(self, budget: _Budget, *, worker: str) -> None:
        self._budget = budget
        self._worker = worker
        self._number = 0
        self._none_until = 0.0
        """Until then, it is known that the tenant has no budget."""
        self._over = False
        self._leases: dict[str, float] = {}
        """Until when each conversation need not ask."""
        self._unsaid: list[tuple[Spending, asyncio.Future[SpendingAnswer | None]]] = []
        self._sent_at = 0.0
        self._speaking: asyncio.Task[None] | None = None

    @property
    def speaks(self) -> bool:
        return self._speaking is not None

    async def ask(self, conversation: str, *, asked: bool) -> None:
        """Returns if the conversation may take a turn. Raises ApplicationError if not, or without an answer."""
        now = time.monotonic()
        if self._none_until > now or (not self._over and self._leases.get(conversation, 0.0) > now):
            return
        said = self._say(Spending(conversation=conversation, asks=True, asked=asked))
        try:
            answer = await asyncio.wait_for(asyncio.shield(said), ANSWER_SECONDS)
        except TimeoutError:
            raise self._silent("it has not answered in time") from None
        except _NoAnswer as error:
            raise self._silent(str(error)) from None
        if answer is None:
            return
        if refused := next((one for one in answer.refused if one.conversation == conversation), None):
            raise _refusal(refused)
        self._leases.pop(conversation, None)
        self._leases[conversation] = time.monotonic() + answer.lease / 2
        while len(self._leases) > MOST_LEASES:
            self._leases.pop(next(iter(self._leases)))

    async def tell(self, conversation: str, reply: ModelReply, *, done: bool) -> None:
        """Reports what a turn spent. Returns once that is counted: a worker that is killed then loses nothing. Without
        an answer, returns after ANSWER_SECONDS; the report is sent again until it is counted. Nothing here fails the
        turn, whose reply is paid for."""
        if self._none_until > time.monotonic():
            return
        if done:
            self._leases.pop(conversation, None)
        said = self._say(
            Spending(conversation=conversation, tokens=reply.usage.total_tokens, cost_usd=reply.cost_usd, done=done)
        )
        with suppress(TimeoutError, _NoAnswer):
            await asyncio.wait_for(asyncio.shield(said), ANSWER_SECONDS)

    async def close(self) -> None:
        if task := self._speaking:
            task.cancel()
            await asyncio.wait({task})

    def _say(self, item: Spending) -> asyncio.Future[SpendingAnswer | None]:
        answer: asyncio.Future[SpendingAnswer | None] = asyncio.get_running_loop().create_future()
        self._unsaid.append((item, answer))
        if self._speaking is None:
            self._speaking = asyncio.create_task(self._speak())
        return answer

    async def _speak(self) -> None:
        try:
            while self._unsaid:
                await asyncio.sleep(self._sent_at + PACE_SECONDS - time.monotonic())
                said, self._unsaid = self._unsaid[:MOST_ITEMS], self._unsaid[MOST_ITEMS:]
                answer = await self._answered(said)
                for _, waits in said:
                    if not waits.done():
                        waits.set_result(answer)
        finally:
            self._speaking = None

    async def _answered(
        self, said: list[tuple[Spending, asyncio.Future[SpendingAnswer | None]]]
    ) -> SpendingAnswer | None:
        """The answer to a batch, which is sent until there is one. The budget counts it only once."""
        self._number += 1
        items = tuple(item for item, _ in said)
        batch = SpendingBatch(worker=self._worker, number=self._number, items=items, declared=self._budget.declared)
        while True:
            self._sent_at = time.monotonic()
            try:
                answer = await self._budget.count(batch)
            except _NoAnswer as error:
                _log.warning("budget.silent", tenant=self._budget.tenant, why=str(error))
                for _, waits in said:
                    if not waits.done():
                        waits.set_exception(_NoAnswer(str(error)))
                        waits.exception()  # whoever asked may have gone
                await asyncio.sleep(AGAIN_SECONDS)
                continue
            self._none_until = time.monotonic() + LOOK_AGAIN_SECONDS if answer is None else 0.0
            self._over = answer is not None and answer.over
            return answer

    def _silent(self, why: str) -> ApplicationError:
        """The error of a budget that does not answer: the turn is tried again while patience lasts."""
        tenant = self._budget.tenant
        delay = retry_delay(None, attempt=activity.info().attempt, longest=PATIENCE)
        return ApplicationError(
            f"The budget of tenant {tenant!r} does not answer: {why}.",
            {"cure": f"It moves here if its workers are gone; `everturn budget {tenant} --remove` removes it."},
            type=names.BUDGET_SILENT,
            next_retry_delay=delay,
            non_retryable=not spend(delay, PATIENCE),
        )


def _refusal(refused: Refusal) -> ApplicationError:
    return ApplicationError(refused.cause, {"cure": refused.cure}, type=names.OVER_BUDGET, non_retryable=True)
