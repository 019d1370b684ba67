"""What a worker holds for each conversation that waits for an approval, beside a bare workflow that waits for a
signal."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from statistics import median

from benchmarks.contestants import EVERTURN, FLOOR, Contestant, Handle
from benchmarks.measures import Column, Measured, Plan
from benchmarks.rig import Rig, status_mb
from benchmarks.rig import rig as fresh_rig

CONVERSATIONS = 400
WARM_UPS = 20
ROUNDS = 3
AT_ONCE = 20
LONGEST_SECONDS = 120.0

FLOOR_WAITING = replace(FLOOR, name="floor_waiting", workflow="FloorWaiting")
EVERTURN_WAITING = replace(EVERTURN, name="everturn_waiting")


async def measure(_: Rig, plan: Plan) -> Measured:
    contestants = [FLOOR_WAITING, EVERTURN_WAITING]
    held: dict[str, list[float]] = {contestant.name: [] for contestant in contestants}
    for number in range(ROUNDS):
        for contestant in replace(plan, contestants=contestants).shuffled(number):
            async with fresh_rig() as running:
                held[contestant.name].append(await _kilobytes_each(running, contestant))
    rows = {name: {"held": median(own), "rounds": ", ".join(f"{kb:.0f}" for kb in own)} for name, own in held.items()}
    columns = [
        Column("held", "KB of the worker's memory each", ".0f", against=FLOOR_WAITING.name),
        Column("rounds", "the rounds", "s", better=None),
    ]
    return Measured(f"{CONVERSATIONS} conversations that wait for an approval ({ROUNDS} rounds)", columns, rows)


async def _kilobytes_each(running: Rig, contestant: Contestant) -> float:
    async with running.worker(contestant, warm=False) as worker, asyncio.timeout(LONGEST_SECONDS):
        await _start_waiting(running, contestant, WARM_UPS)
        before = status_mb(worker.process.pid, "VmRSS")
        await _start_waiting(running, contestant, CONVERSATIONS)
        return (status_mb(worker.process.pid, "VmRSS") - before) * 1024 / CONVERSATIONS


async def _start_waiting(running: Rig, contestant: Contestant, conversations: int) -> None:
    slots = asyncio.Semaphore(AT_ONCE)

    async def start_one() -> None:
        async with slots:
            await _wait_until_it_waits(await running.start(contestant, turns=1))

    await asyncio.gather(*(start_one() for _ in range(conversations)))


async def _wait_until_it_waits(handle: Handle) -> None:
    while (await handle.query("status"))["state"] != "awaiting_approval":  # noqa: ASYNC110 - another process's
        await asyncio.sleep(0.05)
