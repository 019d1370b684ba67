"""Where a conversation goes on after an operator's reset: in another run, which begins like the one that was left."""

from __future__ import annotations

from temporalio.api.enums.v1 import WorkflowTaskFailedCause
from temporalio.client import Client, WorkflowExecutionDescription

from everturn.history import event_types

RESET = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_RESET_WORKFLOW


async def reset_of(client: Client, conversation_id: str, run_id: str) -> tuple[str, int]:
    """The run that a reset of this one made, and how many events the two have in common; ("", 0) if it was not
    reset."""
    if not (new_run_id := await run_after_reset(client, conversation_id, run_id)):
        return "", 0
    alike = 0
    async for event in client.get_workflow_handle(conversation_id, run_id=new_run_id).fetch_history_events():
        if event.event_type == event_types.WORKFLOW_TASK_FAILED:
            failed = event.workflow_task_failed_event_attributes
            alike = event.event_id if failed.cause == RESET else alike
    return new_run_id, alike


async def run_after_reset(client: Client, conversation_id: str, run_id: str) -> str:
    """The run that a reset of this one made; empty if it was not reset."""
    old_run = await client.get_workflow_handle(conversation_id, run_id=run_id).describe()
    if new_run_id := old_run.raw_description.workflow_extended_info.reset_run_id:
        return new_run_id
    # A reset to an earlier run of the chain ends the latest one, and says so only there. What revives a conversation
    # begins a chain of its own.
    latest = await client.get_workflow_handle(conversation_id).describe()
    return latest.run_id if latest.run_id != run_id and _first_run(latest) == _first_run(old_run) else ""


def _first_run(described: WorkflowExecutionDescription) -> str:
    return described.raw_description.workflow_execution_info.first_run_id
