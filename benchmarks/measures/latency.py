"""One conversation at a time: latency and CPU per turn.

Interleaved: every round has one conversation of each contestant, and starts with another one. What else the machine
does then hits all of them alike, and the ratios are taken within a round as well as between the medians.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, replace
from statistics import mean, median, quantiles
from typing import Any

from benchmarks.contestants import EVERTURN, EVERTURN_LOCAL, FLOOR, FLOOR_HTTP
from benchmarks.measures import Column, Measured, Plan
from benchmarks.rig import Rig, Worker

WARM_UPS = 2
BUDGET_SECONDS = 110.0
"""No new round starts later."""


@dataclass(frozen=True)
class Sample:
    """One conversation; everything but the round is per turn."""

    round: int
    latency_ms: float
    """From the call that starts it until its result is here, divided by its turns."""
    worker_cpu_ms: float


async def measure(rig: Rig, plan: Plan) -> Measured:
    if EVERTURN in plan.contestants:
        plan = replace(plan, contestants=(*plan.contestants, EVERTURN_LOCAL))
    samples: dict[str, list[Sample]] = {contestant.name: [] for contestant in plan.contestants}
    until = time.monotonic() + BUDGET_SECONDS
    async with AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(rig.worker(contestant)) for contestant in plan.contestants]
        by_name = {worker.contestant.name: worker for worker in workers}
        for number in range(-WARM_UPS, plan.rounds):
            if time.monotonic() > until:
                break
            for contestant in plan.shuffled(number):
                sample = await one_conversation(rig, by_name[contestant.name], number, turns=plan.turns)
                if number >= 0:
                    samples[contestant.name].append(sample)
    rounds = len(samples[FLOOR.name])
    columns = [
        Column("latency_ms", "ms per turn", against=FLOOR.name),
        Column("latency_ms", "ms per turn", against=FLOOR_HTTP.name),
        Column("quartiles", "quartiles of the rounds' ratios", "s", better=None),
        Column("worker_cpu_ms", "worker CPU ms", against=FLOOR.name),
        Column("worker_cpu_ms", "worker CPU ms", against=FLOOR_HTTP.name),
    ]
    title = f"Latency: one conversation of {plan.turns} turns ({rounds} rounds)"
    raw = {name: [asdict(sample) for sample in own] for name, own in samples.items()}
    return Measured(title, columns, _rows(samples), samples=raw)


async def one_conversation(rig: Rig, worker: Worker, number: int, *, turns: int) -> Sample:
    worker.check()
    cpu, started = worker.cpu_seconds(), time.perf_counter()
    await rig.hold(worker.contestant, turns=turns)
    seconds = time.perf_counter() - started
    await asyncio.sleep(0.02)  # the worker's own last steps
    cpu = worker.cpu_seconds() - cpu
    return Sample(number, seconds / turns * 1000, cpu / turns * 1000)


def _rows(samples: dict[str, list[Sample]]) -> dict[str, dict[str, Any]]:
    """Medians; and the quartiles of the ratios to the floor within the rounds."""
    rows: dict[str, dict[str, Any]] = {}
    for name, own in samples.items():
        within = [one.latency_ms / floor.latency_ms for one, floor in zip(own, samples[FLOOR.name], strict=True)]
        low, _, high = quantiles(within, n=4) if len(within) > 1 else within * 3
        rows[name] = {
            "latency_ms": median(one.latency_ms for one in own),
            "quartiles": f"{low:.2f} to {high:.2f}",
            # Not the median: the clock of a process ticks in steps of 10 ms, which only a sum evens out.
            "worker_cpu_ms": mean(one.worker_cpu_ms for one in own),
        }
    return rows
