"""Checks that a Nexus endpoint is there. To schedule an operation for one that is not would fail the workflow task,
again and again, and nobody would be told."""

from __future__ import annotations

from temporalio import activity
from temporalio.api.operatorservice.v1 import ListNexusEndpointsRequest
from temporalio.service import RPCError, RPCStatusCode

from everturn.activities.agent_lookup import handed_back
from everturn.payloads import ToolRequest
from everturn.temporal.temporal_errors import passes

_NOT_SAID = (RPCStatusCode.UNIMPLEMENTED, RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNAUTHENTICATED)
"""Answers of a server that shows its list of endpoints to operators only, as Temporal Cloud does."""


async def check_endpoint(request: ToolRequest) -> None:
    """Raises the error that hands the call back if the request's endpoint is not there: somebody may still make it."""
    service = activity.client().operator_service
    try:
        response = await service.list_nexus_endpoints(ListNexusEndpointsRequest(name=request.endpoint))
    except RPCError as error:
        if error.status in _NOT_SAID or passes(error):
            return
        raise
    if not response.endpoints:
        raise handed_back(
            f"There is no Nexus endpoint {request.endpoint!r}.",
            f"Make it: temporal operator nexus endpoint create --name {request.endpoint} --target-namespace NAMESPACE "
            "--target-task-queue QUEUE.",
            request.hand_back_for,
            lacks=f"Nexus endpoint {request.endpoint!r}",
        )
