"""If a conversation is silent for some seconds: finds out whether it waits for a worker and none runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from datetime import timedelta
from typing import Final

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.service import RPCError

from everturn.client.unpolled_queue import AwaitedQueue, UnpolledQueue, awaited_queue, nobody_at
from everturn.history.steps import Step, ToolRunFailed, TurnFailed
from everturn.logs import get_logger
from everturn.temporal.any_status import PAUSED, words_of_pause

FIRST_LOOK_SECONDS = 5.0
LONGEST_SECONDS = 60.0
"""The longest pause between two checks while a worker has something to do."""

LOOK_TIMEOUT: Final = timedelta(seconds=5)

_log = get_logger("everturn.conversation")


class MissingWorkerWatch:
    """Watches one conversation that a program waits for."""

    def __init__(self, client: Client, conversation_id: str) -> None:
        self._client = client
        self._id = conversation_id
        self._heard = asyncio.Event()
        self._heard_at = 0.0
        """When its last step came, by the loop's clock."""
        self._said = False

    def note_step(self) -> None:
        """To be called for each step."""
        self._heard_at = asyncio.get_running_loop().time()
        self._heard.set()

    async def note_steps(self, steps: AsyncIterator[tuple[str, Step]]) -> AsyncGenerator[tuple[str, Step]]:
        """Yields the steps that say something. More than half of them do not: they are heard, and left out here, since
        whoever waits for a step needs a task for each."""
        async for run_id, step in steps:
            if type(step) is Step:
                self.note_step()
            else:
                yield run_id, step

    async def wait_until_unattended(self) -> UnpolledQueue:
        """Returns once the conversation waits for a worker and none polls its task queue. Returns once per silence,
        however often it is called."""
        wait = None if self._said else FIRST_LOOK_SECONDS
        while True:
            if await self._hears_step(within=wait):
                self._said = False
                wait = FIRST_LOOK_SECONDS
                await self._falls_silent()
            queue = await self._find_queue()
            unattended = queue if isinstance(queue, UnpolledQueue) else None
            if isinstance(queue, AwaitedQueue):
                unattended = await nobody_at(self._client, queue, self._id)
            if unattended and not self._heard.is_set():
                self._said = True
                return unattended
            if not queue:  # there is nothing to do: wait for the next step before looking again
                wait = None
                continue
            wait = min(2 * (wait or FIRST_LOOK_SECONDS), LONGEST_SECONDS)

    async def _hears_step(self, *, within: float | None) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._heard.wait()
        heard = self._heard.is_set()
        self._heard.clear()
        return heard

    async def _falls_silent(self) -> None:
        """Waits until no step has come for FIRST_LOOK_SECONDS, with one timer for many steps in a row."""
        loop = asyncio.get_running_loop()
        while (remaining := self._heard_at + FIRST_LOOK_SECONDS - loop.time()) > 0:  # noqa: ASYNC110 - no event, but none
            await asyncio.sleep(remaining)
        self._heard.clear()

    async def _find_queue(self) -> AwaitedQueue | UnpolledQueue | bool:
        """The task queue where it waits for a worker; Unattended if an operator has paused it; True if a worker is at
        work on it, or if that is not known; False if there is nothing to do."""
        request = DescribeWorkflowExecutionRequest(
            namespace=self._client.namespace, execution=WorkflowExecution(workflow_id=self._id)
        )
        try:
            described = await self._client.workflow_service.describe_workflow_execution(request, timeout=LOOK_TIMEOUT)
        except RPCError:
            return True
        if described.workflow_execution_info.status == PAUSED:
            return UnpolledQueue(*words_of_pause(self._id))
        if not (described.HasField("pending_workflow_task") or described.pending_activities):
            return False
        return awaited_queue(described) or True


async def with_warnings(
    steps: AsyncIterator[tuple[str, Step]], client: Client, conversation_id: str
) -> AsyncGenerator[tuple[str, Step]]:
    """Yields the steps as they come. Logs a warning if no worker runs, or none that hosts what is to run next."""
    silence = MissingWorkerWatch(client, conversation_id)

    async def warn_when_unattended() -> None:
        while True:
            unattended = await silence.wait_until_unattended()
            _log.warning("worker.missing", conversation=conversation_id, cause=unattended.cause, cure=unattended.cure)

    warning = asyncio.create_task(warn_when_unattended())
    try:
        async for run_id, step in steps:
            silence.note_step()
            match step:
                case TurnFailed(awaited=True, batch=None) | ToolRunFailed(awaited=True):
                    _log.warning("worker.awaited", conversation=conversation_id, cause=step.cause, cure=step.cure)
                case _:
                    pass
            yield run_id, step
    finally:
        warning.cancel()
