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
from statistics import median
from typing import Any

from benchmarks import peers
from benchmarks.contestants import FLOOR, FLOOR_HTTP, Contestant, Handle
from benchmarks.measures import Column, Measured, Plan
from benchmarks.rig import Rig, cpu_seconds, machine_cpu_seconds
from benchmarks.rig import rig as fresh_rig

WINDOWS = {50: 7.0, 200: 9.0}
"""Seconds, by the number of conversations."""
LONGEST_SECONDS = 400.0
ROUNDS = 4
"""Of the light ones, whose ratios are close together. The peers have one: theirs are not, and cost most of the time."""
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
    for number in range(ROUNDS):
        for conversations, window in WINDOWS.items():
            for contestant in plan.shuffled(number):
                if number and contestant.python == peers.PYTHON:
                    continue
                seconds = LONGEST_SECONDS if plan.whole else window
                async with fresh_rig() as rig:
                    samples[contestant.name].append(await many_conversations(rig, contestant, conversations, seconds))
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
    title = f"Throughput: 50 and 200 conversations of {TURNS} turns at once, one worker ({ROUNDS} rounds; peers one)"
    return Measured(title, columns, {name: _row(own) for name, own in samples.items()}, samples=raw)


async def many_conversations(
    rig: Rig, contestant: Contestant, conversations: int, window: float, *, turns: int = TURNS, long_results: int = 0
) -> Sample:
    """`long_results`: how many of the first results are long, as work.py says."""
    async with rig.worker(contestant, LONG_RESULTS=str(long_results)) as worker:
        pids = (worker.process.pid, rig.server_pid, rig.model_pid, os.getpid())
        before, all_before, started = [*map(cpu_seconds, pids)], machine_cpu_seconds(), time.perf_counter()
        handles = await asyncio.gather(*(rig.start(contestant, turns=turns) for _ in range(conversations)))
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
        turns_taken = sum(await asyncio.gather(*(_turns_of(handle, most=turns) for handle in handles)))
    return Sample(conversations, turns_taken, seconds, ours[0], ours[1], peak, max(0.0, others))


async def _turns_of(handle: Handle, *, most: int) -> float:
    """How far it came; then it is ended, if it runs."""
    described = await handle.describe()
    if described.close_time is None:
        await handle.terminate()
    return min(most, max(0.0, (described.history_length - EVENTS_OF_THE_START) / EVENTS_PER_TURN))


def _row(samples: list[Sample]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for count in WINDOWS:
        own = [sample for sample in samples if sample.conversations == count]
        row[f"rate_{count}"] = median(one.turns / one.seconds for one in own)
        row[f"cpu_{count}"] = median(one.worker_cpu_seconds / one.turns * 1000 for one in own)
        row[f"server_{count}"] = median(one.server_cpu_seconds / one.turns * 1000 for one in own)
        row[f"rss_{count}"] = max(one.peak_rss_mb for one in own)
        row[f"others_{count}"] = max(one.others_cpus for one in own)
    return row
