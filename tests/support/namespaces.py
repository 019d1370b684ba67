"""Other namespaces of the tests' server."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest

from everturn import Client
from everturn.devserver import DevServer
from tests.support.waiting import eventually


async def new_namespace(server: DevServer) -> str:
    """Its name, once all parts of the server know it."""
    name = f"agents-{uuid4().hex[:8]}"
    request = RegisterNamespaceRequest(namespace=name)
    request.workflow_execution_retention_period.FromTimedelta(timedelta(days=1))
    await (await Client.connect(server.address)).temporal.workflow_service.register_namespace(request, retry=True)

    async def known() -> bool:
        try:
            await (await Client.connect(server.address, namespace=name)).count()
        except Exception:  # noqa: BLE001 - the server takes its time to tell all of its parts
            return False
        return True

    await eventually(known, what="the namespace is there")
    return name
