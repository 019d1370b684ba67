"""If a conversation is silent for some seconds: finds out whether it waits for a worker and none runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import PendingActivityState, PendingWorkflowTaskState
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionRequest, DescribeWorkflowExecutionResponse
from temporalio.client import Client
from temporalio.service import RPCError

from everturn.client.pollers import polling
from everturn.errors import EverturnError
from everturn.history.steps import Step, ToolRunFailed, TurnFailed
from everturn.logs import get_logger

FIRST_LOOK_SECONDS = 5.0
LONGEST_SECONDS = 60.0
"""The longest pause between two checks while a worker has something to do."""

LOOK_TIMEOUT: Final = timedelta(seconds=5)

_log = get_logger("everturn.conversation")


@dataclass(frozen=True)
class Unattended:
    """Why no worker goes on with it, and what to do."""

    cause: str
    cure: str


class Silence:
    """Watches one conversation that a program waits for."""

    def __init__(self, client: Client, conversation_id: str) -> None:
        self._client = client
        self._id = conversation_id
        self._heard = asyncio.Event()
        self._heard_at = 0.0
        """When its last step came, by the loop's clock."""
        self._said = False

    def heard(self) -> None:
        """To be called for each step."""
        self._heard_at = asyncio.get_running_loop().time()
        self._heard.set()

    async def unattended(self) -> Unattended:
        """Returns once the conversation waits for a worker and none polls its task queue. Returns once per silence,
        however often it is called."""
        wait = None if self._said else FIRST_LOOK_SECONDS
        while True:
            if await self._hears(within=wait):
                self._said, wait = False, FIRST_LOOK_SECONDS
                await self._falls_silent()
            queue = await self._queue()
            if queue and (found := await self._nobody_at(queue)) and not self._heard.is_set():
                self._said = True
                return found
            # If there is nothing to do, wait for the next step before looking again.
            wait = None if queue is None else min(2 * (wait or FIRST_LOOK_SECONDS), LONGEST_SECONDS)

    async def _hears(self, *, within: float | None) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._heard.wait()
        heard = self._heard.is_set()
        self._heard.clear()
        return heard

    async def _falls_silent(self) -> None:
        """Waits until no step has come for FIRST_LOOK_SECONDS, with one timer for many steps in a row."""
        loop = asyncio.get_running_loop()
        while (left := self._heard_at + FIRST_LOOK_SECONDS - loop.time()) > 0:  # noqa: ASYNC110 - no event, but none
            await asyncio.sleep(left)
        self._heard.clear()

    async def _queue(self) -> str | None:
        """The task queue where it waits for a worker; empty if a worker is at work on it, or if that is not known; None
        if there is nothing to do."""
        request = DescribeWorkflowExecutionRequest(
            namespace=self._client.namespace, execution=WorkflowExecution(workflow_id=self._id)
        )
        try:
            found = await self._client.workflow_service.describe_workflow_execution(request, timeout=LOOK_TIMEOUT)
        except RPCError:
            return ""
        if not (found.HasField("pending_workflow_task") or found.pending_activities):
            return None
        return found.execution_config.task_queue.name if _untaken(found) else ""

    async def _nobody_at(self, queue: str) -> Unattended | None:
        with suppress(EverturnError):
            if not await polling(self._client, queue):
                address = self._client.service_client.config.target_host
                return Unattended(
                    f"No worker polls the task queue {queue!r} at {address}: conversation {self._id!r} waits for one.",
                    "Start one that hosts its agent: EVERTURN_AGENTS=FILE.py everturn worker.",
                )
        return None


def _untaken(found: DescribeWorkflowExecutionResponse) -> bool:
    if found.HasField("pending_workflow_task"):
        return found.pending_workflow_task.state == PendingWorkflowTaskState.PENDING_WORKFLOW_TASK_STATE_SCHEDULED
    return any(one.state == PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED for one in found.pending_activities)


async def logged(
    told: AsyncIterator[tuple[str, Step]], client: Client, conversation_id: str
) -> AsyncGenerator[tuple[str, Step]]:
    """Yields the steps as they come. Logs a warning if no worker runs, or none that hosts what is to run next."""
    silence = Silence(client, conversation_id)

    async def warn() -> None:
        while True:
            found = await silence.unattended()
            _log.warning("worker.missing", conversation=conversation_id, cause=found.cause, cure=found.cure)

    warning = asyncio.create_task(warn())
    try:
        async for run_id, step in told:
            silence.heard()
            match step:
                case TurnFailed(awaited=True) | ToolRunFailed(awaited=True):
                    _log.warning("worker.awaited", conversation=conversation_id, cause=step.cause, cure=step.cure)
                case _:
                    pass
            yield run_id, step
    finally:
        warning.cancel()
