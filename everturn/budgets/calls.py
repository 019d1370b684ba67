"""Asks and tells the workflow that keeps a tenant's budget, starts it, and moves it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

from temporalio.client import (
    Client,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.service import RPCError

from everturn import names
from everturn.budgets import moves
from everturn.budgets.records import BudgetStart, BudgetTerms, SpendingAnswer, SpendingBatch
from everturn.errors import EverturnError
from everturn.temporal import temporal_errors
from everturn.temporal.any_status import describe, held_up, is_over
from everturn.temporal.task_timeout import TASK_TIMEOUT
from everturn.validation.explaining import explain

ANSWER_SECONDS: Final = 4.0
"""How long a turn waits for its budget. It sends no heartbeats meanwhile, so this is less than the silence after which
an activity counts as lost."""


OWN_SECONDS: Final = 60.0
"""How long a workflow that was seen to be a budget is taken for one."""


class BudgetCalls:
    """The workflow that keeps a tenant's budget."""

    def __init__(
        self,
        client: Client,
        tenant: str,
        name: str,
        task_queue: str,
        declared: BudgetTerms | None,
        pollers: moves.Pollers,
    ) -> None:
        self._client = client
        self.tenant = tenant
        self._id = name
        self._task_queue = task_queue
        self.declared = declared
        self._pollers = pollers
        self._own_until = 0.0
        """Until then, it is known that the workflow of that id is a budget."""

    async def count_spending(self, batch: SpendingBatch) -> SpendingAnswer | None:
        """The budget's answer; None if there is no such budget. Raises NoAnswer."""
        try:
            if not await self._is_own():
                return None
            try:
                return await self._send_batch(batch)
            except RPCError as error:
                if not temporal_errors.not_found(error):
                    raise
                closed_first = temporal_errors.run_closed_first(error)
                over = temporal_errors.over(error) or closed_first
            # Its run closed with the question in it. The server says so to each further one of that id, so it has to be
            # known whether there is a next run.
            if closed_first and await self._is_running():
                return await self._send_batch(batch)
            if over and await moves.go_on_here(self._client, self._id, self._task_queue):
                return await self._send_batch(batch)
            if self.declared is None:
                return None
            await self._start_budget(self.declared)
            return await self._send_batch(batch)
        except WorkflowUpdateFailedError as error:
            self._own_until = 0.0
            cause = error.cause
            raise NoAnswer(getattr(cause, "message", "") or str(cause)) from error
        except WorkflowUpdateRPCTimeoutOrCancelledError as error:
            if isinstance(error.__cause__, asyncio.CancelledError):
                raise error.__cause__ from None
            self._own_until = 0.0
            where = self._client, self._id, self._task_queue
            moved = await _or_no_answer(moves.move_here(*where, pollers=self._pollers))
            raise NoAnswer("it moves here" if moved else "no worker took the question in time") from error
        except RPCError as error:
            raise NoAnswer(await self._words_of(error)) from error
        except ValueError as error:  # codecs raise all kinds, and the answer may be another version's
            raise NoAnswer(explain(error)) from error

    async def _send_batch(self, batch: SpendingBatch) -> SpendingAnswer:
        answer = await self._client.get_workflow_handle(self._id).execute_update(
            names.COUNT_SPENDING,
            batch.model_dump(mode="json"),
            id=f"{batch.worker}-{batch.number}",
            rpc_timeout=timedelta(seconds=ANSWER_SECONDS),
        )
        return SpendingAnswer.model_validate(answer)

    async def _is_own(self) -> bool:
        """False if another kind of workflow runs under the budget's id, and no budget is declared: there is none then.
        Raises NoAnswer if one is declared, which can't be kept, and RPCError."""
        if time.monotonic() < self._own_until:
            return True
        try:
            described = await describe(self._client, self._id)
        except RPCError as error:
            if not temporal_errors.not_found(error):
                raise
            return True
        if described.workflow_type == names.TENANT_BUDGET or is_over(described):
            self._own_until = time.monotonic() + OWN_SECONDS
            return True
        if self.declared is None:
            return False
        raise NoAnswer(f"a workflow of type {described.workflow_type!r} has its id, {self._id!r}: end that workflow")

    async def _words_of(self, error: RPCError) -> str:
        """What the server said; or that an operator has paused the budget, and what helps."""
        with suppress(RPCError):
            if held := held_up(await describe(self._client, self._id)):
                return " ".join(held)
        return error.message

    async def _is_running(self) -> bool:
        return not is_over(await describe(self._client, self._id))

    async def _start_budget(self, terms: BudgetTerms) -> None:
        await self._client.start_workflow(
            names.TENANT_BUDGET,
            BudgetStart(tenant=self.tenant, budget=terms, declared=True).model_dump(mode="json"),
            id=self._id,
            task_queue=self._task_queue,
            task_timeout=TASK_TIMEOUT,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            rpc_timeout=timedelta(seconds=ANSWER_SECONDS),
        )


class NoAnswer(Exception):
    """The budget did not answer; the message says why."""


async def _or_no_answer(move: Coroutine[Any, Any, bool]) -> bool:
    """What `move` returns. Raises NoAnswer if it fails."""
    try:
        return await move
    except RPCError as error:
        raise NoAnswer(error.message) from error
    except EverturnError as error:
        raise NoAnswer(str(error)) from error
