"""Heartbeats of activities that are no part of a conversation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from temporalio import activity


@asynccontextmanager
async def keep_beating(seconds: float) -> AsyncIterator[None]:
    """Says each so many seconds that this worker is alive. What an earlier try left in the heartbeat is said again."""

    async def send_beats() -> None:
        while True:
            activity.heartbeat(*activity.info().heartbeat_details)
            await asyncio.sleep(seconds)

    task = asyncio.create_task(send_beats())
    try:
        yield
    finally:
        task.cancel()
