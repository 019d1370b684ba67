"""From SIGKILL of a worker that has a workflow task at hand until the next one is done, by a second worker.

Whatever the worker was doing has to be a workflow task, and not an activity. So it is stopped first (SIGSTOP), at any
moment of a conversation. If the last event then is that it began a workflow task, it is killed, else it goes on.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryReverseRequest
from temporalio.client import Client, WorkflowHandle

from benchmarks.contestants import EVERTURN, FLOOR, Contestant, Handle
from benchmarks.measures import Column, Measured, Plan
from benchmarks.rig import Rig, Worker, check_result, rig

TURNS = 250
TRIES = 400
BEFORE_SECONDS = 1.5
"""How long the conversation has run by then. everturn's goes on as a new run after a second if it was started without a
time-out for workflow tasks, and has one then."""
SETTLED_SECONDS = 0.05
"""What the worker had sent before it was stopped has arrived by then."""
LONGEST_SECONDS = 120.0
TEMPORALS_OWN = {"history.defaultWorkflowTaskTimeout": '"10s"'}
"""As any server has it that nobody has configured. everturn's own sets 5 s."""


async def _as_the_cli(client: Client, contestant: Contestant, conversation_id: str, said: str) -> Handle:
    """As `temporal workflow start` does it: without a time-out for workflow tasks."""
    asked: dict[str, Any] = {"agent": "clerk", "message": said}
    started: WorkflowHandle[Any, Any] = await client.start_workflow(
        contestant.workflow, asked, id=conversation_id, task_queue="everturn"
    )
    return started


BY_CLI = replace(EVERTURN, name="everturn_by_cli", start=_as_the_cli)

NOTES = (
    "The server's own time-out for workflow tasks is 10 s here, as everywhere that nobody has changed it. "
    f"**{BY_CLI.name}**: the conversation was started as the Temporal CLI does it, which sets none; in "
    f"its first second a kill costs 10 s there. All had run for {BEFORE_SECONDS:g} s by then.",
)


async def measure(_: Rig, plan: Plan) -> Measured:
    wanted = {contestant.name for contestant in plan.contestants}
    contestants = [one for one in (FLOOR, EVERTURN, BY_CLI) if one.name.removesuffix("_by_cli") in wanted]
    rounds = max(1, plan.rounds // 3)
    rows = {}
    async with rig(dynamic_config=TEMPORALS_OWN) as own:
        for contestant in contestants:
            seconds = [await _round(own, contestant) for _ in range(rounds)]
            rows[contestant.name] = {"seconds": median(seconds), "longest": max(seconds), "rounds": rounds}
    columns = [
        Column("seconds", "seconds, median"),
        Column("longest", "longest"),
        Column("rounds", "rounds", ".0f", better=None),
    ]
    title = "A kill within a workflow task: until the next one is done, by a second worker"
    return Measured(title, columns, rows, notes=NOTES)


async def _round(own: Rig, contestant: Contestant) -> float:
    hosted = EVERTURN if contestant is BY_CLI else contestant
    async with AsyncExitStack() as stack:
        workers = [
            # On machines of their own, as it were: none finds the journal of the other.
            await stack.enter_async_context(own.worker(hosted, TMPDIR=stack.enter_context(TemporaryDirectory())))
            for _ in range(2)
        ]
        handle = await own.start(contestant, turns=TURNS)
        async with asyncio.timeout(LONGEST_SECONDS):
            await asyncio.sleep(BEFORE_SECONDS)
            last = await _killed(own, handle, workers)
            killed = time.time()
            run = (await handle.describe()).run_id
            check_result(handle, await handle.result())
        async for event in own.client.get_workflow_handle(handle.id, run_id=run).fetch_history_events():
            if event.event_id > last and event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
                return event.event_time.ToNanoseconds() / 1e9 - killed
    raise RuntimeError(f"{handle.id} has no workflow task after the kill.")


async def _killed(own: Rig, handle: Handle, workers: Sequence[Worker]) -> int:
    """Kills whichever of the workers has a workflow task; the last event by then."""
    for _ in range(TRIES):
        await asyncio.sleep(random.uniform(0.0, 0.1))
        for worker in workers:
            os.kill(worker.process.pid, signal.SIGSTOP)
            await asyncio.sleep(SETTLED_SECONDS)
            last = await _last_event(own, handle)
            begun = last.workflow_task_started_event_attributes.identity
            if begun.partition("@")[0] == str(worker.process.pid):
                worker.kill()
                return last.event_id
            os.kill(worker.process.pid, signal.SIGCONT)
    raise RuntimeError(f"{handle.id} was never in a workflow task when its worker was stopped.")


async def _last_event(own: Rig, handle: Handle) -> HistoryEvent:
    asked = GetWorkflowExecutionHistoryReverseRequest(
        namespace=own.client.namespace, execution=WorkflowExecution(workflow_id=handle.id), maximum_page_size=1
    )
    return (await own.client.workflow_service.get_workflow_execution_history_reverse(asked)).history.events[0]
