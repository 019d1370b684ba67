"""What `everturn doctor` says about batches that no worker can send or follow."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from everturn import names
from everturn.cli.doctor_finding import Finding
from everturn.errors import EverturnError

if TYPE_CHECKING:
    from everturn.client.client import Client

TIMEOUT_SECONDS: Final = 20.0
MOST_COLLECTORS: Final = 100


async def batch_findings() -> list[Finding]:
    """One for each batch that waits for a worker; nothing if none does, or if the server does not say."""
    from temporalio.service import RPCError

    from everturn.client.client import Client

    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            client = await Client.connect()
            collectors = await _collectors(client)
            return [finding for collector in collectors for finding in await _findings(client, collector)]
    except (EverturnError, RPCError, TimeoutError):  # the lines about Temporal and the workers have said so
        return []


async def _collectors(client: Client) -> list[str]:
    from everturn.temporal.filter_values import quoted

    query = (
        f"WorkflowType = '{names.BATCHES}' AND ExecutionStatus = 'Running' AND TaskQueue = {quoted(client.task_queue)}"
    )
    return [run.id async for run in client.temporal.list_workflows(query, limit=MOST_COLLECTORS)]


async def _findings(client: Client, collector: str) -> list[Finding]:
    from everturn.calls.causes import read_cause

    described = await client.temporal.get_workflow_handle(collector).describe()
    causes = [
        await read_cause(client.temporal.data_converter, pending.last_failure)
        for pending in described.raw_description.pending_activities
    ]
    return [Finding("batches", "wrong", cause.cause, cause.cure) for cause in causes if cause.not_hosted]
