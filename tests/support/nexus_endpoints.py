"""Nexus endpoints for task queues."""

from __future__ import annotations

from uuid import uuid4

from temporalio.api.nexus.v1 import EndpointSpec, EndpointTarget
from temporalio.api.operatorservice.v1 import CreateNexusEndpointRequest

from everturn import Client


async def endpoint_to(client: Client, queue: str) -> str:
    """Makes an endpoint for a task queue; its name."""
    name = f"shop-{uuid4().hex[:8]}"
    await make_endpoint(client, name, queue)
    return name


async def make_endpoint(client: Client, name: str, queue: str) -> None:
    worker = EndpointTarget.Worker(namespace=client.temporal.namespace, task_queue=queue)
    spec = EndpointSpec(name=name, target=EndpointTarget(worker=worker))
    await client.temporal.operator_service.create_nexus_endpoint(CreateNexusEndpointRequest(spec=spec), retry=True)
