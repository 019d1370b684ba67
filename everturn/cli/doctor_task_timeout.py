"""How long the server waits for a worker that was killed in a workflow task, if whoever starts a conversation does not
say. No call says so: it is in the first event of what is started."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from uuid import uuid4

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.service import RPCError

from everturn.cli.doctor_finding import Finding
from everturn.temporal.task_timeout import TASK_TIMEOUT

LONGEST = timedelta(minutes=1)
"""The timeout of the workflow, in case this process is killed."""


async def task_timeout_finding(temporal: Client) -> Finding | None:
    """None if it is as short as everturn's own clients have it, or can't be found out with these credentials."""
    try:
        seconds = (await default_of(temporal)).total_seconds()
    except RPCError:
        return None
    if seconds <= TASK_TIMEOUT.total_seconds():
        return None
    wanted = f"{TASK_TIMEOUT.total_seconds():g}s"
    return Finding(
        "task timeout",
        "note",
        f"{seconds:g} s for conversations whose starter does not say: they wait so long if a worker is killed in a "
        "workflow task",
        f"Set history.defaultWorkflowTaskTimeout to {wanted} in the server's dynamic configuration. On Temporal Cloud, "
        f"and with the Temporal CLI, which says 10 s by itself, start them with --task-timeout {wanted}.",
    )


async def default_of(temporal: Client) -> timedelta:
    """Starts a workflow that no worker takes, reads its first event, and removes it. Raises RPCError."""
    name = f"everturn-doctor-{uuid4().hex[:12]}"
    handle = await temporal.start_workflow("everturn doctor", id=name, task_queue=name, execution_timeout=LONGEST)
    try:
        events = handle.fetch_history_events(page_size=1)
        first = await anext(events)
        return first.workflow_execution_started_event_attributes.workflow_task_timeout.ToTimedelta()
    finally:
        with suppress(RPCError):
            await handle.terminate("everturn doctor has finished its test")
            await temporal.workflow_service.delete_workflow_execution(
                DeleteWorkflowExecutionRequest(
                    namespace=temporal.namespace, workflow_execution=WorkflowExecution(workflow_id=name)
                ),
                retry=True,
            )
