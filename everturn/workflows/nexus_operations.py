"""Nexus operations that serve calls: each is scheduled as it is, and once; Temporal starts it again if need be."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Sequence
from typing import Any

from pydantic import JsonValue
from temporalio import exceptions, workflow
from temporalio.common import RawValue
from temporalio.exceptions import NexusOperationError

from everturn import names
from everturn.calls import activity_outputs
from everturn.plans import ActivityCall, RunNexus
from everturn.state import State
from everturn.workflows import timeouts
from everturn.workflows.awaited_worker import AwaitedWorker

AT_ONCE = 20
"""Of one conversation. Temporal fails the workflow task, again and again, if 30 of a run are open."""

MOST_LEFT = 8
"""Beside those that run, how many operations a run may have that Temporal still counts as open. It counts each one that
timed out, for as long as the run goes on, and what was cancelled until its handler says so."""

ENOUGH_LEFT = 4
"""Beyond this, the conversation goes on as a new run, which has none."""


class ClosedBeforeStart(Exception):
    """The conversation was closed, and nobody had begun the operation."""

    def __init__(self, *, was_scheduled: bool) -> None:
        super().__init__()
        self.was_scheduled = was_scheduled


class NexusOperations:
    def __init__(self, state: State, awaited_worker: AwaitedWorker) -> None:
        self._state = state
        self._awaited_worker = awaited_worker
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._left = 0

    @property
    def is_full(self) -> bool:
        """No more of them in this run."""
        return self._left > MOST_LEFT

    @property
    def many_left(self) -> bool:
        return self._left > ENOUGH_LEFT

    async def run_operation(
        self, plan: RunNexus, inputs: Sequence[JsonValue], served: ActivityCall, *, chain_id: str, summary: str
    ) -> RawValue:
        """The operation's result. Raises NexusOperationError and Closed."""
        client: workflow.NexusClient[Any] = workflow.create_nexus_client(service=plan.service, endpoint=plan.endpoint)
        async with self._slots:
            if self._state.closing:
                raise ClosedBeforeStart(was_scheduled=False)
            starting = asyncio.create_task(
                client.start_operation(
                    plan.operation,
                    inputs[0] if inputs else None,
                    output_type=RawValue,
                    headers=_call_headers(served, chain_id),
                    summary=summary,
                    **timeouts.operation_options(plan),
                )
            )
            operation = asyncio.create_task(_operation_result(starting))
            try:
                await self._wait_for_start(starting, plan, served)
                return await asyncio.shield(operation)
            except (asyncio.CancelledError, ClosedBeforeStart):
                self._left += 1
                # Its end is not waited for: whoever has it in hand may take their time, or never have it in hand.
                operation.add_done_callback(self._let_go)
                operation.cancel()
                raise
            except NexusOperationError as error:
                self._left += _timed_out(error)
                raise

    async def _wait_for_start(self, starting: asyncio.Task[Any], plan: RunNexus, served: ActivityCall) -> None:
        """Waits until somebody has begun it: after a while, the conversation says that it waits for that."""
        within = timeouts.STARTED_WITHIN
        try:
            silence = f"{names.NOT_BEGUN}{served.call_id}"
            await workflow.wait_condition(starting.done, timeout=within, timeout_summary=silence)
        except TimeoutError:
            cause_and_cure = activity_outputs.not_started(plan.endpoint, f"{plan.service}/{plan.operation}", within)
            with self._awaited_worker.show_waiting(served.call_id, *cause_and_cure):
                await workflow.wait_condition(lambda: starting.done() or self._state.closing)
        if not starting.done():
            raise ClosedBeforeStart(was_scheduled=True)

    def _let_go(self, operation: asyncio.Task[RawValue]) -> None:
        """Of one that was cancelled, and has ended."""
        error = None if operation.cancelled() else operation.exception()
        self._left -= not _timed_out(error)


async def _operation_result(starting: asyncio.Task[workflow.NexusOperationHandle[RawValue]]) -> RawValue:
    return await (await starting)


def _timed_out(error: BaseException | None) -> bool:
    return isinstance(error, NexusOperationError) and isinstance(error.cause, exceptions.TimeoutError)


def _call_headers(served: ActivityCall, chain_id: str) -> dict[str, str]:
    """In ASCII, as headers are."""
    # A digest, since ids may be of any letters.
    key = json.dumps([workflow.info().workflow_id, chain_id, served.call_id])
    return {
        names.CALL_HEADER: json.dumps(served.model_dump(mode="json")),
        names.IDEMPOTENCY_HEADER: hashlib.sha256(key.encode()).hexdigest(),
    }
