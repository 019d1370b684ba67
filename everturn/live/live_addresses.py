"""The worker that schedules a model turn writes into its request the address where the turn's text can be followed.

The address is not part of what the conversation decides. Another worker may write another one, and a replay writes
none: Temporal does not compare inputs. Clients that follow a turn read its request anyway, so the address costs neither
an event nor a heartbeat.
"""

from __future__ import annotations

from typing import Any

from temporalio import workflow
from temporalio.worker import StartActivityInput, WorkflowInboundInterceptor, WorkflowOutboundInterceptor

from everturn.live.lane import Lane
from everturn.payloads import ModelRequest


def announce_lane(lane: Lane) -> type[WorkflowInboundInterceptor]:
    """For the SDK, which makes one for each conversation that it has in memory."""

    class Inbound(WorkflowInboundInterceptor):
        def init(self, outbound: WorkflowOutboundInterceptor) -> None:
            super().init(Outbound(outbound))

    class Outbound(WorkflowOutboundInterceptor):
        def start_activity(self, input: StartActivityInput) -> Any:  # noqa: A002
            request = next(iter(input.args), None)
            if isinstance(request, ModelRequest) and request.stream and not workflow.unsafe.is_replaying():
                input.args = [request.model_copy(update={"live_at": lane.announced_address()}), *input.args[1:]]
            return self.next.start_activity(input)

    return Inbound
