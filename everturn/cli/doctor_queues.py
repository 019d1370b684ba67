"""What `everturn doctor` says about task queues if workers have roles."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from everturn.cli.doctor_finding import Finding
from everturn.errors import EverturnError

if TYPE_CHECKING:
    from everturn.client.task_queues import QueueStatus

TIMEOUT_SECONDS: Final = 20.0


async def queue_findings() -> list[Finding]:
    """Nothing if all work is on one queue, or if the server does not say."""
    from everturn.client.client import Client

    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            queues = await (await Client.connect()).task_queues()
    except (EverturnError, TimeoutError):  # the lines about Temporal and the workers have said so
        return []
    if len(queues) == 1:
        return []
    main = queues[0]
    findings = [_of_role(queue) for queue in queues[1:]]
    if main.roles == ("workflows",) and main.workers and main.waiting_activities:
        detail = f"{main.waiting_activities:,} activities wait on {main.name!r}, whose workers take none"
        cure = "If they are from before the workers had roles: start one without --roles until none waits."
        findings.append(Finding(f"queue {main.name}", "note", detail, cure))
    return findings


def _of_role(queue: QueueStatus) -> Finding:
    (role,) = queue.roles
    part = f"workers for {role}"
    if not queue.workers:
        cure = f"Start one: everturn worker --agents FILE.py --roles {role}."
        detail = f"none polls the task queue {queue.name!r}, to which conversations send {role}"
        return Finding(part, "wrong", detail, cure)
    detail = f"{len(queue.workers)} polled task queue {queue.name!r}: {', '.join(queue.workers[:5])}"
    limit = queue.limit.per_second
    if limit is not None:
        detail += f"; limited to {limit:g} a second"
    return Finding(part, "ok", detail)
