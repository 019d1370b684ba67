"""The worker process: what `python worker.py` and `everturn worker` share."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, Final

from everturn import logs
from everturn.errors import InvalidSetting, Unreachable
from everturn.settings import Settings
from everturn.system.gc_pauses import paused
from everturn.temporal.worker_roles import checked_roles, polled_by
from everturn.worker import drain_deadline

if TYPE_CHECKING:
    from everturn.client.client import Client

_RECONNECT_SECONDS: Final = 0.5
_REMIND_SECONDS: Final = 30.0


def run(main: Coroutine[Any, Any, None]) -> None:
    """`asyncio.run`, on uvloop if it is installed: a tenth less CPU for each turn (extra `everturn[fast]`). What it
    waits for afterwards, such as a thread that reads from a disk that is gone, has `drain_deadline.GRACE_SECONDS`."""
    loops: Callable[[], asyncio.AbstractEventLoop] | None = None
    with suppress(ImportError):
        from uvloop import new_event_loop as loops
    status = 1
    with ExitStack() as at_the_end, asyncio.Runner(loop_factory=loops) as runner:
        try:
            runner.run(main)
            status = 0
        finally:
            timer = threading.Timer(drain_deadline.GRACE_SECONDS, drain_deadline.end_process, [status])
            timer.daemon = True
            timer.start()
            at_the_end.callback(timer.cancel)


async def serve(settings: Settings) -> None:
    """Host the agents that the settings name until SIGINT or SIGTERM, and drain. Waits for the server. Raises
    EverturnError."""
    prepare_process(settings)
    roles = checked_roles(settings.roles)
    if not settings.agents:
        raise InvalidSetting(
            "No agents to host.",
            cure="Set EVERTURN_AGENTS, or --agents of `everturn worker`, to module:agent or to Python files, "
            "with commas between.",
        )
    # Only now: the SDK and our own rooms take half a second to import, and a bad setting should not wait for them.
    with paused():
        from everturn.client.client import Client
        from everturn.loading import load_agents
        from everturn.worker.worker import Worker

        # What is imported stays: to look through it once, when collecting begins again, takes a twentieth of a start.
        gc.freeze()
    agents = load_agents(",".join(settings.agents))
    client = await _connect_when_up(Client.connect)
    gc.collect()  # what the agents' modules dropped
    gc.freeze()  # and looking through what they keep again and again costs 3 % of a turn's CPU
    worker = Worker(
        client, agents=agents, task_queue=settings.task_queue, roles=roles, restored_at=settings.restored_at
    )
    await worker.run()


async def _connect_when_up(connect: Callable[[], Awaitable[Client]]) -> Client:
    """A client as soon as the server is there, however long that takes: a worker that starts during an outage is ready
    when it is over. A wrong address looks the same, so the log says again and again what it waits for."""
    log = logs.get_logger("everturn.worker")
    logged_at = -_REMIND_SECONDS
    while True:
        try:
            return await connect()
        except Unreachable as error:
            if time.monotonic() - logged_at >= _REMIND_SECONDS:
                logged_at = time.monotonic()
                log.warning("server.unreachable", error=error.message, cure=error.cure, why=str(error.__cause__)[:200])
        await asyncio.sleep(_RECONNECT_SECONDS)


def prepare_process(settings: Settings) -> None:
    """Logs and metrics, as a process needs them before its first Temporal client. Raises InvalidSetting."""
    logs.configure(format=settings.log, level=settings.log_level)
    if settings.metrics:
        from everturn.worker.metrics import expose

        expose(settings.metrics)
    else:
        logs.forward_core_logs()


async def check(settings: Settings) -> None:
    """Raise Unreachable unless a worker on this machine is polling: a container's health check."""
    from everturn.client.client import Client
    from everturn.client.pollers import polling_here

    roles = checked_roles(settings.roles)
    queue = polled_by(settings.task_queue, roles)
    if not await polling_here((await Client.connect()).temporal, queue, activities="workflows" not in roles):
        raise Unreachable(
            f"No worker on this machine polls the task queue {queue!r}.",
            cure="Start one (`everturn worker`, or `python worker.py`), or read its log.",
        )
