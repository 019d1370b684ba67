"""What an operator does to a conversation, with the `temporal` command for the most part."""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import uuid4

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType, ResetReapplyExcludeType
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest, ResetWorkflowExecutionRequest
from temporalio.service import RPCError, RPCStatusCode

from everturn import Client, Conversation
from tests.support.waiting import eventually


async def signal(conversation: Conversation, name: str, payload: Any) -> None:
    """What `temporal workflow signal` does."""
    await conversation._temporal.get_workflow_handle(conversation.id).signal(name, payload)


async def move_on(conversation: Conversation) -> None:
    """Uses up the updates of the run, if `bounds(updates=2)` holds, so that it goes on as new."""
    run = await conversation.latest_run()
    await conversation.pause()
    await conversation.resume()
    await goes_on(conversation, run)


async def goes_on(conversation: Conversation, first: str) -> None:
    """Waits until it goes on as another run than the `first` one."""

    async def another() -> bool:
        return await conversation.latest_run() != first

    await eventually(another, what="it goes on as new")


async def reset_to_the_last_workflow_task(client: Client, conversation: Conversation) -> None:
    """What `temporal workflow reset --type LastWorkflowTask` does."""
    await reset_to(client, conversation, task=-1)


async def reset_to(
    client: Client, conversation: Conversation, *, task: int, run_id: str | None = None, keep_signals: bool = True
) -> None:
    """To its workflow task of this number, from 0, or from the end for a negative one. `keep_signals`: those that came
    since then come again."""
    handle = client.temporal.get_workflow_handle(conversation.id, run_id=run_id)
    completed = [
        event.event_id
        async for event in handle.fetch_history_events()
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
    ]
    await client.temporal.workflow_service.reset_workflow_execution(
        ResetWorkflowExecutionRequest(
            namespace=client.temporal.namespace,
            workflow_execution=WorkflowExecution(workflow_id=conversation.id, run_id=run_id or ""),
            workflow_task_finish_event_id=completed[task],
            request_id=uuid4().hex,
            reason="it stood still",
            reset_reapply_exclude_types=()
            if keep_signals
            else [ResetReapplyExcludeType.RESET_REAPPLY_EXCLUDE_TYPE_SIGNAL],
        ),
        retry=True,
    )


async def running(client: Client, conversation: Conversation, name: str) -> str:
    """The id of the running activity of that name."""

    async def found() -> str:
        described = await client.temporal.get_workflow_handle(conversation.id).describe()
        pending = described.raw_description.pending_activities
        return next((entry.activity_id for entry in pending if entry.activity_type.name == name), "")

    return str(await eventually(found, what=f"{name} runs"))


async def complete(client: Client, conversation: Conversation, name: str, result: Any) -> None:
    """What `temporal activity complete --result` does."""
    handle = client.temporal.get_async_activity_handle(
        workflow_id=conversation.id, run_id=None, activity_id=await running(client, conversation, name)
    )
    await handle.complete(result)


async def delete(client: Client, conversation: Conversation, *run_ids: str) -> None:
    """What `temporal workflow delete` does; returns once the runs are gone."""
    for run_id in run_ids:
        execution = WorkflowExecution(workflow_id=conversation.id, run_id=run_id)
        request = DeleteWorkflowExecutionRequest(namespace=client.temporal.namespace, workflow_execution=execution)
        await client.temporal.workflow_service.delete_workflow_execution(request, retry=True)
    for run_id in run_ids:
        await eventually(partial(_gone, client, conversation, run_id), seconds=100, what=f"run {run_id} is gone")


async def _gone(client: Client, conversation: Conversation, run_id: str) -> bool:
    try:
        await client.temporal.get_workflow_handle(conversation.id, run_id=run_id).describe()
    except RPCError as error:
        return error.status is RPCStatusCode.NOT_FOUND
    return False
