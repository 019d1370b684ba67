"""Whether a server answers a request that waits for more of a history."""

from __future__ import annotations

from typing import Final
from weakref import WeakKeyDictionary

from temporalio.api.workflowservice.v1 import GetSystemInfoRequest
from temporalio.client import Client
from temporalio.service import RPCError, ServiceClient

_KNOWN: Final[WeakKeyDictionary[ServiceClient, bool]] = WeakKeyDictionary()


async def has_long_poll(client: Client) -> bool:
    """False for Temporal's test server, the one that skips time (`start_time_skipping`): it leaves such a request
    without an answer while the history is open (temporal-test-server 1.40). It is known by a capability that every real
    server has told since 1.16, and it does not."""
    service = client.service_client
    if (known := _KNOWN.get(service)) is not None:
        return known
    try:
        system_info = await client.workflow_service.get_system_info(GetSystemInfoRequest(), retry=True)
    except RPCError:
        return True
    _KNOWN[service] = system_info.capabilities.activity_failure_include_heartbeat
    return _KNOWN[service]
