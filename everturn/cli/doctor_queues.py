"""What `everturn doctor` says about task queues if workers have roles."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Literal

from everturn.errors import EverturnError

if TYPE_CHECKING:
    from everturn.client.task_queues import QueueStatus

TIMEOUT_SECONDS: Final = 20.0

Told = tuple[str, Literal["ok", "wrong", "note"], str, str]
"""Part, state, detail and cure."""


async def queue_findings() -> list[Told]:
    """Nothing if all work is on one queue, or if the server does not say."""
    from everturn.client.client import Client

    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            found = await (await Client.connect()).task_queues()
    except (EverturnError, TimeoutError):  # the lines about Temporal and the workers have said so
        return []
    if len(found) == 1:
        return []
    main = found[0]
    told = [_of_role(one) for one in found[1:]]
    if main.roles == ("workflows",) and main.workers and main.waiting_activities:
        detail = f"{main.waiting_activities:,} activities wait on {main.name!r}, whose workers take none"
        cure = "If they are from before the workers had roles: start one without --roles until none waits."
        told.append((f"queue {main.name}", "note", detail, cure))
    return told


def _of_role(queue: QueueStatus) -> Told:
    (role,) = queue.roles
    part = f"workers for {role}"
    if not queue.workers:
        cure = f"Start one: EVERTURN_AGENTS=FILE.py everturn worker --roles {role}."
        return part, "wrong", f"none polls the task queue {queue.name!r}, to which conversations send {role}", cure
    limit, named = queue.limit.per_second, ", ".join(queue.workers[:5])
    held = f"; limited to {limit:g} a second" if limit is not None else ""
    return part, "ok", f"{len(queue.workers)} polled task queue {queue.name!r}: {named}{held}", ""
