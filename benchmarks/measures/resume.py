"""From SIGKILL of a worker in the middle of a model turn until the conversation is done, with a second worker standing
by. The model answers at once when it is asked again, and one short turn is left, so this is how long all stands still.

All contestants at the same time: nearly all of it is waiting for time-outs.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from uuid import uuid4

from benchmarks.contestants import Handle
from benchmarks.measures import Column, Measured, Plan
from benchmarks.rig import LONGEST_START_SECONDS, Rig, Worker, check_result

STARTED = 2
"""PENDING_ACTIVITY_STATE_STARTED"""
IN_THE_TURN_SECONDS = 1.0
LONGEST_SECONDS = 100.0


async def measure(rig: Rig, plan: Plan) -> Measured:
    talking = [contestant for contestant in plan.contestants if contestant.http]  # the others have no model to wait for
    async with AsyncExitStack() as stack:
        workers: dict[int, Worker] = {}
        for contestant in talking:
            for _ in range(2):
                worker = await stack.enter_async_context(rig.worker(contestant))
                workers[worker.process.pid] = worker
        handles = [await rig.start(contestant, turns=2, slow=uuid4().hex) for contestant in talking]
        holding = await asyncio.gather(*map(_until_it_waits, handles))
        seconds = await asyncio.gather(
            *(_resume(workers[pid], handle) for pid, handle in zip(holding, handles, strict=True))
        )
    rows = {contestant.name: {"seconds": took} for contestant, took in zip(talking, seconds, strict=True)}
    notes = [f"-: it had not resumed after {LONGEST_SECONDS:.0f} s."] if None in seconds else []
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


async def _until_it_waits(handle: Handle) -> int:
    """Until the slow model turn has been running for a second; the process id of the worker that runs it."""
    async with asyncio.timeout(LONGEST_START_SECONDS):
        since, length, identity = time.monotonic(), 0, ""
        while time.monotonic() - since < IN_THE_TURN_SECONDS:
            await asyncio.sleep(0.1)
            described = await handle.describe()
            pending = described.raw_description.pending_activities
            if described.history_length != length or not pending or pending[0].state != STARTED:
                since, length = time.monotonic(), described.history_length
            elif pending:
                identity = pending[0].last_worker_identity
    return int(identity.partition("@")[0])
