"""Which workers poll a task queue, as the server tells it."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import PollerInfo, TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client
from temporalio.service import RPCError

from everturn import temporal_errors

RECENT_SECONDS = 120.0
"""A poll waits up to 60 s at the server, and counts as seen when it began."""

REMEMBERED_SECONDS = 330.0
"""The server forgets a poller after five minutes: one that looks older shows that our clock is ahead."""


async def polling(temporal: Client, task_queue: str) -> list[PollerInfo]:
    """The workers that polled for conversations in the last minutes. Raises Unreachable."""
    request = DescribeTaskQueueRequest(
        namespace=temporal.namespace,
        task_queue=TaskQueue(name=task_queue),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
    )
    try:
        described = await temporal.workflow_service.describe_task_queue(request)
    except RPCError as error:
        raise temporal_errors.unreachable(temporal, error) from error
    return recent(described.pollers, now=time.time())


async def polling_here(temporal: Client, task_queue: str) -> bool:
    """Whether a worker on this machine is among them."""
    here = "@" + socket.gethostname()  # Temporal's identity of a worker: pid@host
    return any(poller.identity.endswith(here) for poller in await polling(temporal, task_queue))


def recent(pollers: Sequence[PollerInfo], *, now: float) -> list[PollerInfo]:
    """Those seen lately. If our clock can't be right, time is counted from the one that was seen last."""
    seen = [poller.last_access_time.ToSeconds() for poller in pollers]
    if seen and not (now - max(seen) >= 0 and now - min(seen) <= REMEMBERED_SECONDS):
        now = max(seen)
    return [poller for poller, at in zip(pollers, seen, strict=True) if now - at <= RECENT_SECONDS]
