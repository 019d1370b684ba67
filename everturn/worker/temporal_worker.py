"""Temporal's worker, which ends with its event loop, and lets a workflow task take its time."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import temporalio.worker

AGAIN_SECONDS: Final = 1.0
"""A worker that was cancelled and has not ended by then is cancelled again."""


class TemporalWorker(temporalio.worker.Worker):
    """A program that never leaves its worker ends all the same.

    `asyncio.run` cancels every task then, and among them those that fetch the worker's tasks. The worker waits for what
    was on its way to them: now and then for ever, if it is not cancelled again. Activities are tasks of their own: they
    end as they do, and say so.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # The SDK takes a workflow task of 2 seconds for a deadlock of what a user wrote, and throws an exception into
        # its thread. This workflow runs nothing of a user's: it is slow on a machine that has no time for it, and an
        # exception at the wrong moment can keep the worker from ever letting go of the conversation. The server's
        # timeout of the task stays. `debug_mode` would run it on the event loop.
        workflows: Any = self._workflow_worker
        assert hasattr(workflows, "_deadlock_timeout_seconds"), "temporalio has another name for it now: look it up"
        workflows._deadlock_timeout_seconds = None

    async def run(self) -> None:
        work = asyncio.create_task(super().run())
        try:
            await asyncio.wait({work})
        except asyncio.CancelledError:
            while not work.done():
                work.cancel()
                await asyncio.wait({work}, timeout=AGAIN_SECONDS)
            raise
        await work
