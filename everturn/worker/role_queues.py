"""A worker that leaves out model turns or tools has its conversations send them to task queues of their own.

The queue is no part of what the conversation decides: it is in the history, with the event that schedules the activity,
and a replay does not compare it. So conversations that began before a fleet had roles go on with them, and back.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from temporalio import workflow
from temporalio.worker import StartActivityInput, WorkflowInboundInterceptor, WorkflowOutboundInterceptor

from everturn.temporal.worker_roles import Role, own_queue, role_of_activity


def send_to_own_queues(roles: Collection[Role]) -> type[WorkflowInboundInterceptor]:
    """For the SDK, which makes one for each conversation that it has in memory. `roles`: those that the worker has."""

    class Inbound(WorkflowInboundInterceptor):
        def init(self, outbound: WorkflowOutboundInterceptor) -> None:
            super().init(Outbound(outbound))

    class Outbound(WorkflowOutboundInterceptor):
        def start_activity(self, input: StartActivityInput) -> Any:  # noqa: A002
            role = role_of_activity(input.activity)
            # A user's own activity may have the queue that its tool names.
            if role not in roles and input.task_queue is None:
                input.task_queue = own_queue(workflow.info().task_queue, role)
            return self.next.start_activity(input)

    return Inbound
