"""Replies with many calls, which run at the same time: latency per turn."""

from __future__ import annotations

import time
from contextlib import AsyncExitStack
from statistics import median

from benchmarks.contestants import EVERTURN, EVERTURN_LOCAL, FLOOR, Contestant
from benchmarks.measures import Column, Measured, Plan
from benchmarks.rig import Rig

CALLS, TURNS, ROUNDS = 8, 10, 8


async def measure(rig: Rig, plan: Plan) -> Measured:
    contestants = [FLOOR, *((EVERTURN, EVERTURN_LOCAL) if EVERTURN in plan.contestants else ())]
    samples: dict[str, list[float]] = {contestant.name: [] for contestant in contestants}
    async with AsyncExitStack() as stack:
        for contestant in contestants:
            await stack.enter_async_context(rig.worker(contestant))
        for number in range(-1, ROUNDS):
            for contestant in contestants if number % 2 else contestants[::-1]:
                latency = await _latency(rig, contestant)
                if number >= 0:
                    samples[contestant.name].append(latency)
    rows = {name: {"latency_ms": median(own)} for name, own in samples.items()}
    columns = [Column("latency_ms", "ms per turn", against=FLOOR.name)]
    return Measured(f"{CALLS} calls at once: one conversation of {TURNS} turns", columns, rows, samples=samples)


async def _latency(rig: Rig, contestant: Contestant) -> float:
    started = time.perf_counter()
    await rig.hold(contestant, turns=TURNS, calls=CALLS)
    return (time.perf_counter() - started) / TURNS * 1000
