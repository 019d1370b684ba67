"""Tasks that failed, and nobody looked at their errors."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class WatchedTask(asyncio.Task[Any]):
    """Python says that a task failed unnoticed only when it clears that away, which may be long after the test; and
    never, if the task is cancelled afterwards."""

    _failed_before_cancelled = False

    @property
    def failed_unnoticed(self) -> bool:
        return self._failed_before_cancelled or self._log_traceback

    def cancel(self, msg: Any = None) -> bool:
        self._failed_before_cancelled = self.failed_unnoticed
        return super().cancel(msg)


@contextmanager
def watched_tasks() -> Iterator[list[WatchedTask]]:
    """All that begin on the running loop meanwhile."""
    tasks: list[WatchedTask] = []

    def create_task(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> WatchedTask:
        tasks.append(WatchedTask(coroutine, loop=loop, **options))
        return tasks[-1]

    loop = asyncio.get_running_loop()
    factory = loop.get_task_factory()
    loop.set_task_factory(create_task)
    try:
        yield tasks
    finally:
        loop.set_task_factory(factory)
