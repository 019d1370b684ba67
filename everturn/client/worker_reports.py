"""What the workers of a task queue report: which agents they host, and whether they have stopped.

This is in the heartbeats that the SDK sends for each worker, once a minute."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from temporalio.api.enums.v1 import WorkerStatus
from temporalio.api.worker.v1 import PluginInfo
from temporalio.api.workflowservice.v1 import ListWorkersRequest
from temporalio.client import Client
from temporalio.service import RPCError

from everturn import names
from everturn.sizes import MAX_ANNOUNCED_BYTES
from everturn.temporal.worker_roles import ALL, ROLES, Role, in_words

MOST_PAGES = 20
PAGE_SIZE = 100

STOPPED = frozenset({WorkerStatus.WORKER_STATUS_SHUTTING_DOWN, WorkerStatus.WORKER_STATUS_SHUTDOWN})


@dataclass(frozen=True)
class AnnouncedWorker:
    identity: str
    stopped: bool
    beat_at: float
    """When its last heartbeat came, in seconds since 1970 by its own clock; 0 if the server does not say."""
    agents: frozenset[str] | None
    """The agents that it hosts; None if it does not say, for example because it finds them in a store."""
    roles: frozenset[Role] = ALL


def plugin_name(agents: Iterable[str] | None, *, roles: frozenset[Role] = ALL) -> str:
    """The name of a worker's plugin, which lists the agents, and the roles if they are not all: temporalio sends plugin
    names with heartbeats."""
    report: dict[str, Any] = {names.PLUGIN: None if agents is None else sorted(agents)}
    if roles != ALL:
        report[names.PLUGIN_ROLES] = in_words(roles)
    name = json.dumps(report, ensure_ascii=False)
    if len(name.encode()) <= MAX_ANNOUNCED_BYTES:
        return name
    return json.dumps({**report, names.PLUGIN: None})


async def announced_workers(temporal: Client, task_queue: str) -> Sequence[AnnouncedWorker]:
    """All workers that the server remembers, also stopped ones; empty if the server keeps no such list."""
    workers: list[AnnouncedWorker] = []
    request = ListWorkersRequest(
        namespace=temporal.namespace, page_size=PAGE_SIZE, query=f"TaskQueue={json.dumps(task_queue)}"
    )
    for _ in range(MOST_PAGES):
        try:
            page = await temporal.workflow_service.list_workers(request, retry=True)
        except RPCError:  # an older server, or one that has it switched off
            return []
        if page.workers_info:
            for beat in (info.worker_heartbeat for info in page.workers_info):
                beat_at = 0.0
                if beat.HasField("heartbeat_time"):
                    beat_at = beat.heartbeat_time.ToNanoseconds() / 1e9
                workers.append(_read_worker(beat.worker_identity, beat.status, beat_at, beat.plugins))
        else:
            workers += [
                _read_worker(worker.worker_identity, worker.status, 0, worker.plugins) for worker in page.workers
            ]
        request.next_page_token = page.next_page_token
        if not page.next_page_token:
            break
    return workers


def _read_worker(
    identity: str, status: WorkerStatus.ValueType, beat_at: float, plugins: Iterable[PluginInfo]
) -> AnnouncedWorker:
    reports = filter(None, (_read_report(plugin.name) for plugin in plugins))
    agents, roles = next(reports, (None, ALL))
    return AnnouncedWorker(identity, stopped=status in STOPPED, beat_at=beat_at, agents=agents, roles=roles)


def _read_report(name: str) -> tuple[frozenset[str] | None, frozenset[Role]] | None:
    try:
        report = json.loads(name)
        agents = report[names.PLUGIN]
        roles = report.get(names.PLUGIN_ROLES)
    except (ValueError, TypeError, KeyError, AttributeError):  # another plugin
        return None
    known = frozenset(ROLES)
    if isinstance(roles, str):
        known &= set(roles.split(","))
    if not isinstance(agents, list):
        return None, known
    return frozenset(map(str, agents)), known
