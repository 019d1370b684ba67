"""The worker process: what `python worker.py` and `everturn worker` share."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from queue import Empty, SimpleQueue
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, NoReturn

from everturn import logs
from everturn.errors import InvalidSetting, Unreachable
from everturn.settings import Settings

if TYPE_CHECKING:
    from everturn.client.client import Client

GRACE_SECONDS = 10.0
"""Beyond its drain, for a process to end by itself."""

_RECONNECT_SECONDS: Final = 0.5
_REMIND_SECONDS: Final = 30.0
_DRAINING_SECONDS: Final = 10.0
"""Between two log lines that say how much time is left."""


def run(main: Coroutine[Any, Any, None]) -> None:
    """`asyncio.run`, on uvloop if it is installed: a tenth less CPU for each turn (extra `everturn[fast]`). What it
    waits for afterwards, such as a thread that reads from a disk that is gone, is given GRACE_SECONDS."""
    loops: Callable[[], asyncio.AbstractEventLoop] | None = None
    with suppress(ImportError):
        from uvloop import new_event_loop as loops
    status = 1
    with ExitStack() as at_the_end, asyncio.Runner(loop_factory=loops) as runner:
        try:
            runner.run(main)
            status = 0
        finally:
            timer = threading.Timer(GRACE_SECONDS, end_process, [status])
            timer.daemon = True
            timer.start()
            at_the_end.callback(timer.cancel)


@contextmanager
def drained(*, within: timedelta) -> Iterator[None]:
    """Once SIGINT or SIGTERM comes, the process has so long to leave the block, and the log says how much of that is
    left. After that and GRACE_SECONDS it ends all the same: a tool that blocks the event loop would keep it from ever
    draining. A second signal ends it at once. To be entered in the main thread, once the other handlers of these
    signals are set."""
    end = _End(within.total_seconds())
    inner = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def handle(number: int, frame: FrameType | None) -> None:
        end.asked(signal.Signals(number))
        if callable(before := inner[signal.Signals(number)]):
            before(number, frame)

    for number in inner:
        signal.signal(number, handle)
    try:
        yield
    finally:
        end.left()


class _End:
    """Sees to it in a thread of its own: the event loop may be blocked."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._begun = False
        self._news: SimpleQueue[signal.Signals | None] = SimpleQueue()  # what a signal handler may put into
        """The second signal; or None, once the block is left."""
        self._log = logs.get_logger("everturn.worker")

    def asked(self, number: signal.Signals) -> None:
        if self._begun:
            self._news.put(number)
        else:
            self._begun = True
            threading.Thread(target=self._wait, name="everturn-end", daemon=True).start()

    def left(self) -> None:
        self._news.put(None)

    def _wait(self) -> None:
        ends = time.monotonic() + self._seconds
        try:
            while (left := ends - time.monotonic()) > 0:
                effect = "What runs may finish; a second Ctrl-C or SIGTERM ends it at once."
                self._log.info("worker.draining", seconds=round(left, 1), effect=effect)
                with suppress(Empty):
                    return self._end_at_once(self._news.get(timeout=min(left, _DRAINING_SECONDS)))
            self._end_at_once(self._news.get(timeout=GRACE_SECONDS))
        except Empty:
            seconds, cure = round(self._seconds + GRACE_SECONDS, 1), "A tool blocks the event loop, or never ends."
            self._log.error("worker.stuck", seconds=seconds, cure=cure)
            end_process(1)

    def _end_at_once(self, second: signal.Signals | None) -> None:
        if second is not None:
            effect = "Other workers take over what it had in hand."
            self._log.warning("worker.ended_at_once", signal=second.name, effect=effect)
            end_process(128 + second)


def end_process(status: int) -> NoReturn:
    """Ends it with this exit status, once everything is closed.

    Not sys.exit, which waits for threads: a tool that hangs would keep its process from ever ending.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


async def serve(settings: Settings) -> None:
    """Host the agents that the settings name until SIGINT or SIGTERM, and drain. Waits for the server. Raises
    EverturnError."""
    prepare(settings)
    if not settings.agents:
        raise InvalidSetting(
            "No agents to host.", cure="Set EVERTURN_AGENTS to module:agent or to Python files, with commas between."
        )
    # Only now: the SDK and our own rooms take half a second to import, and a bad setting should not wait for them.
    from everturn.client.client import Client
    from everturn.loading import load_agents
    from everturn.worker.worker import Worker

    agents = [agent for spec in settings.agents for agent in load_agents(spec)]
    client = await _reached(Client.connect)
    await Worker(client, agents=agents, task_queue=settings.task_queue).run()


async def _reached(connect: Callable[[], Awaitable[Client]]) -> Client:
    """A client as soon as the server is there, however long that takes: a worker that starts during an outage is ready
    when it is over. A wrong address looks the same, so the log says again and again what it waits for."""
    log, told_at = logs.get_logger("everturn.worker"), -_REMIND_SECONDS
    while True:
        try:
            return await connect()
        except Unreachable as error:
            if time.monotonic() - told_at >= _REMIND_SECONDS:
                told_at = time.monotonic()
                log.warning("server.unreachable", error=error.message, cure=error.cure, why=str(error.__cause__)[:200])
        await asyncio.sleep(_RECONNECT_SECONDS)


def prepare(settings: Settings) -> None:
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

    if not await polling_here((await Client.connect()).temporal, settings.task_queue):
        raise Unreachable(f"No worker on this machine polls the task queue {settings.task_queue!r}.")
