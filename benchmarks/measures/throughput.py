"""Many conversations at once on one worker process: turns per second, CPU per turn, and the worker's peak memory.

Each contestant gets a fresh server, since what others leave there slows it down, a fresh worker, and a window of time,
after which the worker is killed and the turns are counted from the histories' events. `--whole` waits until all
conversations are done. The window is kind to those that grow with the square: it shows them in their early turns.
"""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.contestants import FLOOR, FLOOR_HTTP, Contestant, Handle
from benchmarks.measures import Column, Measured, Plan
from benchmarks.rig import Rig, cpu_seconds, machine_cpu_seconds
from benchmarks.rig import rig as fresh_rig

WINDOWS = {50: 7.0, 200: 9.0}
"""Seconds, by the number of conversations."""
LONGEST_SECONDS = 400.0
ROUNDS = 2
BUDGET_SECONDS = 180.0
"""No second round starts later."""
TURNS = 20
EVENTS_PER_TURN = 12
EVENTS_OF_THE_START = 4


@dataclass(frozen=True)
class Sample:
    conversations: int
    turns: float
    seconds: float
    worker_cpu_seconds: float
    server_cpu_seconds: float
    peak_rss_mb: float
    others_cpus: float
    """How many CPUs other work on this machine took meanwhile."""


async def measure(_: Rig, plan: Plan) -> Measured:
    samples: dict[str, list[Sample]] = {contestant.name: [] for contestant in plan.contestants}
    until = time.monotonic() + (float("inf") if plan.whole else BUDGET_SECONDS)
    for number in range(ROUNDS):
        for conversations, window in WINDOWS.items():
            if number and time.monotonic() > until:
                break
            for contestant in plan.shuffled(number):
                seconds = LONGEST_SECONDS if plan.whole else window
                async with fresh_rig() as rig:
                    samples[contestant.name].append(await _one(rig, contestant, conversations, seconds))
    columns = []
    for count in WINDOWS:
        columns += [
            Column(f"rate_{count}", f"turns/s, {count}", better="high", against=FLOOR.name),
            Column(f"rate_{count}", f"turns/s, {count}", better="high", against=FLOOR_HTTP.name),
            Column(f"cpu_{count}", f"worker CPU ms/turn, {count}", against=FLOOR.name),
            Column(f"server_{count}", f"server CPU ms/turn, {count}"),
            Column(f"rss_{count}", f"worker peak MB, {count}", ".0f"),
            Column(f"others_{count}", "CPUs taken by others", ".2f", better=None),
        ]
    raw = {name: [asdict(sample) for sample in own] for name, own in samples.items()}
    title = f"Throughput: 50 and 200 conversations of {TURNS} turns at once, one worker"
    return Measured(title, columns, {name: _row(own) for name, own in samples.items()}, samples=raw)


async def _one(rig: Rig, contestant: Contestant, conversations: int, window: float) -> Sample:
    async with rig.worker(contestant) as worker:
        pids = (worker.process.pid, rig.server_pid, rig.model_pid, os.getpid())
        before, all_before, started = [*map(cpu_seconds, pids)], machine_cpu_seconds(), time.perf_counter()
        handles = await asyncio.gather(*(rig.start(contestant, turns=TURNS) for _ in range(conversations)))
        results = [asyncio.create_task(handle.result()) for handle in handles]
        _, running = await asyncio.wait(results, timeout=window)
        seconds = time.perf_counter() - started
        worker.check()
        ours = [cpu_seconds(pid) - earlier for pid, earlier in zip(pids, before, strict=True)]
        others = (machine_cpu_seconds() - all_before - sum(ours)) / seconds
        peak = worker.peak_rss_mb()
        worker.kill()  # so that nothing goes on while the turns are counted
        for task in running:
            task.cancel()
        await asyncio.gather(*results, return_exceptions=True)
        turns = sum(await asyncio.gather(*map(_turns_of, handles)))
    return Sample(conversations, turns, seconds, ours[0], ours[1], peak, max(0.0, others))


async def _turns_of(handle: Handle) -> float:
    """How far it came; then it is ended, if it runs."""
    described = await handle.describe()
    if described.close_time is None:
        await handle.terminate()
    return min(TURNS, max(0.0, (described.history_length - EVENTS_OF_THE_START) / EVENTS_PER_TURN))


def _row(samples: list[Sample]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for count in WINDOWS:
        # Not the median: what disturbs a window is other work, which can be seen, so the least disturbed one counts.
        one = min(
            (sample for sample in samples if sample.conversations == count), key=lambda sample: sample.others_cpus
        )
        row[f"rate_{count}"] = one.turns / one.seconds
        row[f"cpu_{count}"] = one.worker_cpu_seconds / one.turns * 1000
        row[f"server_{count}"] = one.server_cpu_seconds / one.turns * 1000
        row[f"rss_{count}"] = one.peak_rss_mb
        row[f"others_{count}"] = one.others_cpus
    return row
