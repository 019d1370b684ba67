"""Temporal's worker, which ends with its event loop."""

from __future__ import annotations

import asyncio
from typing import Final

import temporalio.worker

AGAIN_SECONDS: Final = 1.0
"""A worker that was cancelled and has not ended by then is cancelled again."""


class TemporalWorker(temporalio.worker.Worker):
    """A program that never leaves its worker ends all the same.

    `asyncio.run` cancels every task then, and among them those that fetch the worker's tasks. The worker waits for what
    was on its way to them: now and then for ever, if it is not cancelled again. Activities are tasks of their own: they
    end as they do, and say so.
    """

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
