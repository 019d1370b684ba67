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

    async def watch() -> None:
        while (status := server.exit_status) is None:  # noqa: ASYNC110 - a process has no event for it
            await asyncio.sleep(LOOK_SECONDS)
        error = _ended(server, status)
        if at_once:
            at_once(error)
        raise error

    try:
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(watch())
            yield
            watching.cancel()
    except BaseExceptionGroup as raised:  # only of two: the watch, and the block
        lost = next((one for one in raised.exceptions if isinstance(one, Unreachable)), raised.exceptions[0])
        raise lost from lost.__cause__


def _ended(server: DevServer, status: int) -> Unreachable:
    how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with exit status {status}"
    log = f" Its log is {server.db_filename.with_suffix('.log')}." if server.db_filename else ""
    kept = "what it has recorded is kept" if server.db_filename else "it kept nothing on disk"
    return Unreachable(
        f"The Temporal server that this command started, at {server.address}, {how}.{log}",
        cure=f"Run the command again: {kept}.",
    )
