"""The runs of a conversation, with their histories, as the server has them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.service import RPCError

from everturn import names
from everturn.errors import Refused
from everturn.temporal.filter_values import quoted
from everturn.temporal.temporal_errors import not_found


async def runs_of(client: Client, conversation_id: str) -> list[str]:
    """The ids of all its runs, the latest last, including those before a revival or a reset."""
    query = f"WorkflowId = {quoted(conversation_id)} AND WorkflowType = {quoted(names.CONVERSATION)}"
    run_ids = [execution.run_id async for execution in client.list_workflows(query)]
    run_ids.reverse()
    # The index lags. So the newest run is asked for directly, and each run says which one came before it.
    run_id = await latest_run(client, conversation_id)
    chain: list[str] = []
    while run_id and run_id not in chain:
        chain.insert(0, run_id)
        run_id = await _run_before(client, conversation_id, run_id)
    return [run_id for run_id in run_ids if run_id not in chain] + chain


async def latest_run(client: Client, conversation_id: str) -> str:
    described = await describe_run(client, conversation_id, "")
    if described is None:
        return ""
    if (kind := described.workflow_execution_info.type.name) != names.CONVERSATION:
        raise Refused(f"{conversation_id!r} is no conversation, but a workflow of type {kind!r}.", cure="Check the id.")
    return str(described.workflow_execution_info.execution.run_id)


async def _run_before(client: Client, conversation_id: str, run_id: str) -> str:
    async for event in events_of(client, conversation_id, run_id, page_size=1):
        began = event.workflow_execution_started_event_attributes
        reset_from = began.original_execution_run_id
        return began.continued_execution_run_id or (reset_from if reset_from != run_id else "")
    return ""


async def describe_run(client: Client, conversation_id: str, run_id: str) -> Any:
    """None if there is no such run."""
    execution = WorkflowExecution(workflow_id=conversation_id, run_id=run_id)
    request = DescribeWorkflowExecutionRequest(namespace=client.namespace, execution=execution)
    try:
        return await client.workflow_service.describe_workflow_execution(request, retry=True)
    except RPCError as error:
        if not not_found(error):
            raise
        return None


async def events_of(
    client: Client, conversation_id: str, run_id: str, *, page_size: int | None = None
) -> AsyncIterator[HistoryEvent]:
    """The events of a run; none if the run is gone."""
    handle = client.get_workflow_handle(conversation_id, run_id=run_id)
    try:
        async for event in handle.fetch_history_events(page_size=page_size):
            yield event
    except RPCError as error:
        if not not_found(error):
            raise
