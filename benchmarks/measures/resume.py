"""From SIGKILL of a worker in the middle of a model turn until the conversation is done, with a second worker standing
by. The model answers at once when it is asked again, and one short turn is left, so this is how long all stands still.

All contestants at the same time: nearly all of it is waiting for time-outs. Those that wait for less have more rounds.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from statistics import median
from tempfile import TemporaryDirectory
from uuid import uuid4

from benchmarks.contestants import EVERTURN, Contestant, Handle
from benchmarks.measures import Column, Measured, Plan
from benchmarks.rig import LONGEST_START_SECONDS, Rig, Worker, check_result

STARTED = 2
"""PENDING_ACTIVITY_STATE_STARTED"""
IN_THE_TURN_SECONDS = 1.0
LONGEST_SECONDS = 100.0
ROUNDS = 5
BUDGET_SECONDS = 60.0
"""No new round starts later."""

BESIDE = replace(
    EVERTURN,
    name="everturn_beside",
    what="both of everturn's workers on one machine, where the second finds the journal of the first. In the other "
    "row, each has a temporary folder of its own, as on a machine of its own: only Temporal says that one is gone.",
)


THRIFTY = replace(
    EVERTURN,
    name="everturn_thrifty",
    what="everturn with EVERTURN_HEARTBEATS=thrifty, as on Temporal Cloud, each worker as on a machine of its own.",
)


async def measure(rig: Rig, plan: Plan) -> Measured:
    talking = [contestant for contestant in plan.contestants if contestant.http]  # the others have no model to wait for
    if EVERTURN in talking:
        place = talking.index(EVERTURN) + 1
        talking[place:place] = [BESIDE, THRIFTY]
    samples = await asyncio.gather(*(_rounds(rig, contestant) for contestant in talking))
    rows = {
        contestant.name: {"seconds": median(seconds) if None not in seconds else None, "rounds": len(seconds)}
        for contestant, seconds in zip(talking, samples, strict=True)
    }
    notes = [f"**{one.name}**: {one.what}" for one in (BESIDE, THRIFTY) if one in talking]
    if any(None in seconds for seconds in samples):
        notes.append(f"-: it had not resumed after {LONGEST_SECONDS:.0f} s.")
    columns = [Column("seconds", "seconds, median"), Column("rounds", "rounds", ".0f", better=None)]
    return Measured("Resume: after SIGKILL in a model turn, a second worker standing by", columns, rows, notes=notes)


async def _rounds(rig: Rig, contestant: Contestant) -> list[float | None]:
    seconds: list[float | None] = []
    until = time.monotonic() + BUDGET_SECONDS
    while len(seconds) < ROUNDS and time.monotonic() < until:
        seconds.append(await _round(rig, contestant))
    return seconds


async def _round(rig: Rig, contestant: Contestant) -> float | None:
    async with AsyncExitStack() as stack:
        workers: dict[int, Worker] = {}
        for _ in range(2):
            own = {} if contestant is BESIDE else {"TMPDIR": stack.enter_context(TemporaryDirectory())}
            worker = await stack.enter_async_context(rig.worker(contestant, **own))
            workers[worker.process.pid] = worker
        handle = await rig.start(contestant, turns=2, slow=uuid4().hex)
        return await _resume(workers[await _until_it_waits(handle)], handle)


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
