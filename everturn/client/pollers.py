"""Which workers poll a task queue, by what the server says, and which agents they host."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable, Sequence

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import PollerInfo, TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client
from temporalio.service import RPCError

from everturn.client.process_identity import died_here, is_here
from everturn.client.worker_reports import AnnouncedWorker, announced_workers
from everturn.temporal import temporal_errors
from everturn.temporal.worker_roles import ALL, Role

RECENT_SECONDS = 120.0
"""A poll waits up to 60 s at the server, and counts as seen when it began."""

HEARD_SECONDS = 75.0
"""Workers send heartbeats every 60 s, and a poll takes 60 s at most: a live worker's last sign is newer than this."""

REMEMBERED_SECONDS = 330.0
"""The server forgets a poller after five minutes: one that looks older shows that our clock is ahead."""

SECOND_LOOK_SECONDS = 1.0
"""The pause before the second look: the server shows a worker that has just begun to poll within half a second."""


async def find_pollers(temporal: Client, task_queue: str, *, activities: bool = False) -> list[PollerInfo]:
    """The workers that poll for conversations, without those that have reported that they stop, or have been silent for
    more than a minute. `activities`: those that poll for activities. Raises Unreachable."""
    return (await _look_at_queue(temporal, task_queue, activities=activities))[0]


async def polling_here(temporal: Client, task_queue: str, *, activities: bool = False) -> bool:
    """Whether a worker that runs on this machine is among them."""
    pollers = await find_pollers(temporal, task_queue, activities=activities)
    return any(is_here(poller.identity) and not died_here(poller.identity) for poller in pollers)


async def find_live_workers(temporal: Client, task_queue: str, *, activities: bool = False) -> list[str]:
    """The identities of those that may run. Raises Unreachable."""
    pollers = await find_pollers(temporal, task_queue, activities=activities)
    return sorted_out(poller.identity for poller in pollers)[0]


def sorted_out(identities: Iterable[str]) -> tuple[list[str], list[str]]:
    """The workers that may run, and those that are known to be gone: processes of this machine that were killed. The
    server shows these for a minute or two."""
    once = list(dict.fromkeys(identities))
    gone = [identity for identity in once if died_here(identity)]
    return [identity for identity in once if identity not in gone], gone


async def roles_elsewhere(temporal: Client, task_queue: str) -> frozenset[Role]:
    """The roles that workers of the conversations' queue leave to others; empty if they don't say. Raises
    Unreachable."""
    pollers, workers = await _look_at_queue(temporal, task_queue)
    live = {poller.identity for poller in pollers}
    return frozenset(
        role for worker in workers if worker.identity in live and not worker.stopped for role in ALL - worker.roles
    )


async def hosted_agents(temporal: Client, task_queue: str) -> frozenset[str] | None:
    """The agents that the workers of the queue host. None if that is not known: nobody polls, or a worker does not say,
    because it finds agents in a store or sends no heartbeats. Raises Unreachable."""
    pollers, workers = await _look_at_queue(temporal, task_queue)
    agents = frozenset[str]()
    for poller in pollers:
        theirs = [worker for worker in workers if worker.identity == poller.identity and not worker.stopped]
        if not theirs or any(worker.agents is None for worker in theirs):
            return None
        agents = agents.union(*(worker.agents or () for worker in theirs))
    if not pollers:
        return None
    return agents


async def hosted_beside(agent: str, temporal: Client, task_queue: str) -> frozenset[str] | None:
    """The hosted agents if `agent` is not among them; empty if it is; None if that is not known. Looks twice, since a
    worker may have just started. Raises Unreachable."""
    hosted = await hosted_agents(temporal, task_queue)
    if hosted is not None and agent not in hosted:
        await asyncio.sleep(SECOND_LOOK_SECONDS)
        hosted = await hosted_agents(temporal, task_queue)
    if hosted is not None and agent in hosted:
        return frozenset()
    return hosted


async def _look_at_queue(
    temporal: Client, task_queue: str, *, activities: bool = False
) -> tuple[list[PollerInfo], Sequence[AnnouncedWorker]]:
    kind = TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW
    if activities:
        kind = TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY
    request = DescribeTaskQueueRequest(
        namespace=temporal.namespace, task_queue=TaskQueue(name=task_queue), task_queue_type=kind
    )
    try:
        described, workers = await asyncio.gather(
            temporal.workflow_service.describe_task_queue(request, retry=True),
            announced_workers(temporal, task_queue),
        )
    except RPCError as error:
        raise temporal_errors.unreachable(temporal, error) from error
    return recent_pollers(described.pollers, now=time.time(), workers=workers), workers


def recent_pollers(
    pollers: Sequence[PollerInfo], *, now: float, workers: Collection[AnnouncedWorker] = ()
) -> list[PollerInfo]:
    """The pollers seen lately. If this machine's clock can't be right, the latest poll counts as now."""
    seen = [poller.last_access_time.ToNanoseconds() / 1e9 for poller in pollers]
    if seen and not (now - max(seen) >= 0 and now - min(seen) <= REMEMBERED_SECONDS):
        now = max(seen)
    return [
        poller
        for poller, seen_at in zip(pollers, seen, strict=True)
        if now - seen_at <= RECENT_SECONDS and not _is_gone(poller.identity, seen_at, workers, now=now)
    ]


def _is_gone(identity: str, polled_at: float, workers: Collection[AnnouncedWorker], *, now: float) -> bool:
    """Whether its heartbeats show that it is gone; False if it sends none."""
    theirs = [worker for worker in workers if worker.identity == identity]
    if works := [worker for worker in theirs if not worker.stopped]:
        heard = max(polled_at, *(worker.beat_at or now for worker in works))
        return now - heard > HEARD_SECONDS
    # A process may have stopped one worker and started another, which has not sent a heartbeat yet.
    return bool(theirs) and not any(0 < worker.beat_at < polled_at for worker in theirs)
