"""Signals that the server has taken and the history does not have yet."""

from __future__ import annotations

from temporalio.api.enums.v1 import PendingWorkflowTaskState
from temporalio.client import WorkflowExecutionDescription


def holds_back(described: WorkflowExecutionDescription) -> bool:
    """Whether there may be such signals. While a worker has a workflow task in hand, the server keeps all that comes in
    beside the history: it writes it right after the end of the task, which is the next event (server 1.32)."""
    task = described.raw_description.pending_workflow_task
    return task.state == PendingWorkflowTaskState.PENDING_WORKFLOW_TASK_STATE_STARTED
