"""Watches the Temporal server that a command has started: without it, the command would wait for ever."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from everturn.errors import Unreachable

if TYPE_CHECKING:
    from everturn.devserver import DevServer

LOOK_SECONDS: Final = 0.5


@asynccontextmanager
async def while_it_runs(
    server: DevServer | None, *, at_once: Callable[[Unreachable], None] | None = None
) -> AsyncIterator[None]:
    """Cancels the block if the server ends by itself, and raises Unreachable. None: it is somebody else's server, which
    may come back. `at_once` is given the error before the block is left: that may take as long as a worker drains."""
    if server is None:
        yield
        return

    async def watch_server() -> None:
        while (status := server.exit_status) is None:  # noqa: ASYNC110 - a process has no event for it
            await asyncio.sleep(LOOK_SECONDS)
        error = _ended_error(server, status)
        if at_once:
            at_once(error)
        raise error

    try:
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(watch_server())
            yield
            watching.cancel()
    except BaseExceptionGroup as raised:  # only of two: the watch, and the block
        unreachable = (error for error in raised.exceptions if isinstance(error, Unreachable))
        lost = next(unreachable, raised.exceptions[0])
        raise lost from lost.__cause__


def _ended_error(server: DevServer, status: int) -> Unreachable:
    how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with exit status {status}"
    log = ""
    kept = "it kept nothing on disk"
    if server.db_filename:
        log = f" Its log is {server.db_filename.with_suffix('.log')}."
        kept = "what it has recorded is kept"
    return Unreachable(
        f"The Temporal server that this command started, at {server.address}, {how}.{log}",
        cure=f"Run the command again: {kept}.",
    )
