"""Ends what a test has begun."""

from __future__ import annotations

from contextlib import suppress

from temporalio.service import RPCError

from everturn import Client
from tests.support.waiting import eventually


async def end_all(client: Client) -> None:
    """Terminates the workflows on the client's task queue that the server's index shows as running."""
    query = f"TaskQueue = '{client.task_queue}' AND ExecutionStatus = 'Running'"

    async def none_runs() -> bool:
        running = [execution async for execution in client.temporal.list_workflows(query)]
        for execution in running:
            with suppress(RPCError):  # it has ended since
                await client.temporal.get_workflow_handle(execution.id, run_id=execution.run_id).terminate()
        return not running

    await eventually(none_runs, what="no workflow of the test runs")
