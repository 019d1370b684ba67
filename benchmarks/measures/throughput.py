"""Many conversations at once on one worker process: turns per second, CPU per turn, and the worker's peak memory.

Each contestant gets a fresh worker and a window of time, after which the worker is killed and the turns are counted
from the histories' events. `--whole` waits until all conversations are done. The window is kind to those that grow with
the square: it shows them in their early turns.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from benchmarks.contestants import FLOOR, FLOOR_HTTP, Contestant, Handle
from benchmarks.measures import Column, Measured, Plan
from benchmarks.rig import Rig, cpu_seconds

WINDOWS = {50: 7.0, 200: 9.0}
"""Seconds, by the number of conversations."""
LONGEST_SECONDS = 400.0
ROUNDS = 2
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


async def measure(rig: Rig, plan: Plan) -> Measured:
    samples: dict[str, list[Sample]] = {contestant.name: [] for contestant in plan.contestants}
    for number in range(ROUNDS):
        for conversations, window in WINDOWS.items():
            for contestant in plan.rotated(number):
                seconds = LONGEST_SECONDS if plan.whole else window
                samples[contestant.name].append(await _one(rig, contestant, conversations, seconds))
    columns = []
    for count in WINDOWS:
        columns += [
            Column(f"rate_{count}", f"turns/s, {count}", better="high", against=FLOOR.name),
            Column(f"rate_{count}", f"turns/s, {count}", better="high", against=FLOOR_HTTP.name),
            Column(f"cpu_{count}", f"worker CPU ms/turn, {count}", against=FLOOR.name),
            Column(f"server_{count}", f"server CPU ms/turn, {count}"),
            Column(f"rss_{count}", f"worker peak MB, {count}", ".0f"),
        ]
    raw = {name: [asdict(sample) for sample in own] for name, own in samples.items()}
    title = f"Throughput: 50 and 200 conversations of {TURNS} turns at once, one worker"
    return Measured(title, columns, {name: _row(own) for name, own in samples.items()}, samples=raw)


async def _one(rig: Rig, contestant: Contestant, conversations: int, window: float) -> Sample:
    async with rig.worker(contestant) as worker:
        cpu, server_cpu, started = worker.cpu_seconds(), cpu_seconds(rig.server_pid), time.perf_counter()
        handles = await asyncio.gather(*(rig.start(contestant, turns=TURNS) for _ in range(conversations)))
        results = [asyncio.create_task(handle.result()) for handle in handles]
        _, running = await asyncio.wait(results, timeout=window)
        seconds = time.perf_counter() - started
        worker.check()
        cpu, server_cpu = worker.cpu_seconds() - cpu, cpu_seconds(rig.server_pid) - server_cpu
        peak = worker.peak_rss_mb()
        worker.kill()  # so that nothing goes on while the turns are counted
        for task in running:
            task.cancel()
        await asyncio.gather(*results, return_exceptions=True)
        turns = sum(await asyncio.gather(*map(_turns_of, handles)))
    return Sample(conversations, turns, seconds, cpu, server_cpu, peak)


async def _turns_of(handle: Handle) -> float:
    """How far it came; then it is ended, if it runs."""
    described = await handle.describe()
    if described.close_time is None:
        await handle.terminate()
    return min(TURNS, max(0.0, (described.history_length - EVENTS_OF_THE_START) / EVENTS_PER_TURN))


def _row(samples: list[Sample]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for count in WINDOWS:
        own = [sample for sample in samples if sample.conversations == count]
        row[f"rate_{count}"] = median(one.turns / one.seconds for one in own)
        row[f"cpu_{count}"] = median(one.worker_cpu_seconds / one.turns * 1000 for one in own)
        row[f"server_{count}"] = median(one.server_cpu_seconds / one.turns * 1000 for one in own)
        row[f"rss_{count}"] = max(one.peak_rss_mb for one in own)
    return row
