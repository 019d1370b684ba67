"""How long a worker may be silent in what a conversation schedules, if this worker beats seldom.

It is no part of the conversation's input, so that one goes on under whatever its workers are set to; and a replay does
not compare it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from temporalio.worker import StartActivityInput, WorkflowInboundInterceptor, WorkflowOutboundInterceptor

from everturn import names


def lost_after(timeout: timedelta) -> type[WorkflowInboundInterceptor]:
    """For the SDK, which makes one for each conversation that it has in memory."""

    class Inbound(WorkflowInboundInterceptor):
        def init(self, outbound: WorkflowOutboundInterceptor) -> None:
            super().init(Outbound(outbound))

    class Outbound(WorkflowOutboundInterceptor):
        def start_activity(self, input: StartActivityInput) -> Any:  # noqa: A002
            users_own = (input.activity_id or "").startswith(names.ACTIVITY_OF_CALL)
            if input.heartbeat_timeout is not None and not users_own:
                input.heartbeat_timeout = timeout
            return self.next.start_activity(input)

    return Inbound
