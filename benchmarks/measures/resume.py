"""From SIGKILL of a worker in the middle of a model turn until the conversation is done, with a second worker standing
by. The model answers at once when it is asked again, and one short turn is left, so this is how long all stands still.

All contestants at the same time: nearly all of it is waiting for time-outs.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from uuid import uuid4

from benchmarks.contestants import Contestant, Handle
from benchmarks.measures import Column, Measured, Plan
from benchmarks.rig import LONGEST_START_SECONDS, Rig, Worker, check_result

STARTED = 2
"""PENDING_ACTIVITY_STATE_STARTED"""
IN_THE_TURN_SECONDS = 1.0
LONGEST_SECONDS = 100.0


async def measure(rig: Rig, plan: Plan) -> Measured:
    talking = [contestant for contestant in plan.contestants if contestant.http]  # the others have no model to wait for
    async with AsyncExitStack() as stack:
        doomed: list[Worker] = []
        handles: list[Handle] = []
        for contestant in talking:
            doomed.append(await stack.enter_async_context(rig.worker(contestant)))
            handle = await rig.start(contestant, turns=2, slow=uuid4().hex)
            await _until_it_waits(handle)
            handles.append(handle)
        for contestant in talking:
            second = await stack.enter_async_context(rig.worker(contestant, warm=False))
            await _until_it_polls(rig, contestant, second)
        seconds = await asyncio.gather(*(_resume(one, handle) for one, handle in zip(doomed, handles, strict=True)))
    rows = {contestant.name: {"seconds": took} for contestant, took in zip(talking, seconds, strict=True)}
    notes = ["None: it had not resumed after 100 s."] if None in seconds else []
    columns = [Column("seconds", "seconds")]
    return Measured("Resume: after SIGKILL in a model turn, a second worker standing by", columns, rows, notes=notes)


async def _resume(worker: Worker, handle: Handle) -> float | None:
    worker.kill()
    started = time.perf_counter()
    try:
        async with asyncio.timeout(LONGEST_SECONDS):
            check_result(handle, await handle.result())
    except TimeoutError:
        return None
    return time.perf_counter() - started


async def _until_it_waits(handle: Handle) -> None:
    """Until the slow model turn has been running for a second."""
    async with asyncio.timeout(LONGEST_START_SECONDS):
        since, length = time.monotonic(), 0
        while time.monotonic() - since < IN_THE_TURN_SECONDS:
            await asyncio.sleep(0.1)
            described = await handle.describe()
            pending = described.raw_description.pending_activities
            if described.history_length != length or not pending or pending[0].state != STARTED:
                since, length = time.monotonic(), described.history_length


async def _until_it_polls(rig: Rig, contestant: Contestant, worker: Worker) -> None:
    async with asyncio.timeout(LONGEST_START_SECONDS):
        while worker.process.pid not in await rig.pollers(contestant):
            worker.check()
            await asyncio.sleep(0.1)
