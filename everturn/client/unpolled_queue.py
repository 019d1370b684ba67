"""Whether a conversation waits for a worker at a task queue that none polls."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from temporalio.api.enums.v1 import PendingActivityState, PendingWorkflowTaskState
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionResponse
from temporalio.client import Client

from everturn.client.pollers import find_pollers, sorted_out
from everturn.errors import EverturnError
from everturn.temporal.worker_roles import Role, role_of


@dataclass(frozen=True)
class UnpolledQueue:
    """Why no worker goes on with it, and what to do."""

    cause: str
    cure: str


@dataclass(frozen=True)
class AwaitedQueue:
    """Where a conversation waits for a worker."""

    name: str
    role: Role | None
    """What the worker is to do there; None: the whole, as far as the server says."""


def awaited_queue(described: DescribeWorkflowExecutionResponse) -> AwaitedQueue | None:
    """None if a worker is at work on it, or if the queue is not one of everturn's."""
    own_queue = described.execution_config.task_queue.name
    if described.HasField("pending_workflow_task"):
        state = described.pending_workflow_task.state
        if state != PendingWorkflowTaskState.PENDING_WORKFLOW_TASK_STATE_SCHEDULED:
            return None
        return AwaitedQueue(own_queue, None)
    for activity in described.pending_activities:
        if activity.state == PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED:
            return _of_activity(activity, own_queue)
    return None


def _of_activity(pending: PendingActivityInfo, own: str) -> AwaitedQueue | None:
    name = pending.activity_options.task_queue.name
    if not name:  # an older server
        return AwaitedQueue(own, None)
    role = role_of(name, own, pending.activity_type.name)
    return AwaitedQueue(name, role) if role else None


async def nobody_at(temporal: Client, queue: AwaitedQueue, conversation_id: str) -> UnpolledQueue | None:
    """What is to be said if no worker polls the queue, or only some that were killed on this machine; None if one does,
    or if that is not known."""
    with suppress(EverturnError):
        pollers = await find_pollers(temporal, queue.name, activities=queue.role is not None)
        running, gone_workers = sorted_out(poller.identity for poller in pollers)
        if not running:
            cause = f"No worker polls the task queue {queue.name!r}"
            cure = "Start one that hosts its agent: everturn worker --agents FILE.py"
            if queue.role:
                cause += f" for {queue.role}"
                if queue.name.endswith(f"-{queue.role}"):
                    cure += f" --roles {queue.role}"
            cause += f" at {temporal.service_client.config.target_host}"
            if gone_workers:
                cause += f" (gone from this machine: {', '.join(gone_workers[:5])})"
            return UnpolledQueue(f"{cause}: conversation {conversation_id!r} waits for one.", f"{cure}.")
    return None
