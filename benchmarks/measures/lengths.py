"""What a turn costs by the length of the transcript before it: CPU of the worker, latency, and the memory it holds.

The first results of a conversation are long, so that its transcript has the length soon; its last turns are measured,
from the time that the scripted model is asked for the first of them. Everyone has a worker and a server of its own.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import work
from benchmarks.contestants import FLOOR, Contestant
from benchmarks.measures import Column, Measured, Plan
from benchmarks.rig import RESULTS, Rig, Worker, check_result, rig, status_mb

LENGTHS_MB = (0.1, 0.5, 2.0, 8.0)
TURNS = 20
"""Measured at each length, with a result of 4 KB each."""
WARM_UPS = 2
LONGEST_SECONDS = 200.0
ROUNDS = 3
ROUNDS_SECONDS = 500.0
"""A round takes minutes, with the peers. There is no further one that would not be over by then."""
EACH_LOOK_SECONDS = 0.005


@dataclass(frozen=True)
class Cost:
    cpu_ms: float
    latency_ms: float
    held_mb: float
    """More memory than before the conversation, at its end."""


async def measure(_: Rig, plan: Plan) -> Measured:
    return await costs_of(plan)


async def costs_of(plan: Plan) -> Measured:
    """A server each, as what one leaves on it slows down the next."""
    RESULTS.mkdir(exist_ok=True)
    contestants = [contestant for contestant in plan.contestants if contestant is not FLOOR]
    costs: dict[tuple[str, float], list[Cost]] = {}
    no_further: set[tuple[str, float]] = set()
    started, rounds = time.monotonic(), 0
    while rounds < min(plan.rounds, ROUNDS) and _is_over_in_time(time.monotonic() - started, rounds):
        for length in LENGTHS_MB:
            for contestant in plan.shuffled(rounds):
                place = contestant.name, length
                if contestant not in contestants or place in no_further:
                    continue
                if cost := await _cost(contestant, length):
                    costs.setdefault(place, []).append(cost)
                else:
                    no_further.add(place)
        rounds += 1
    rows = {contestant.name: _row(contestant.name, costs) for contestant in contestants}
    columns = [Column(f"cpu_{mb}", f"CPU ms at {mb} MB", better=None) for mb in LENGTHS_MB]
    columns += [
        Column(f"growth_{mb}", f"of that at {LENGTHS_MB[0]} MB: {mb} MB", ".2f", better=None) for mb in LENGTHS_MB[2:]
    ]
    columns += [Column(f"latency_{mb}", f"latency ms at {mb} MB", better=None) for mb in LENGTHS_MB]
    columns += [Column(f"held_{mb}", f"MB held at {mb} MB", better=None) for mb in LENGTHS_MB]
    title = f"What a turn costs by the length of its transcript ({TURNS} turns at each, {rounds} rounds)"
    notes = ["A dash: it did not come so far, or took longer than the measure waits."]
    return Measured(title, columns, rows, notes=notes)


def _is_over_in_time(seconds: float, rounds: int) -> bool:
    """Whether one more round is over in time if it takes as long as those so far."""
    return rounds == 0 or seconds * (rounds + 1) / rounds < ROUNDS_SECONDS


async def _cost(contestant: Contestant, length_mb: float) -> Cost | None:
    before = max(round(length_mb * 1000 / work.LONG_RESULT_KB), WARM_UPS)
    log = RESULTS / f"lengths-{contestant.name}.log"
    await asyncio.to_thread(log.write_text, "")
    try:
        async with rig(model_log=log) as running, running.worker(contestant, LONG_RESULTS=str(before)) as worker:
            return await _last_turns(running, worker, log, before=before)
    except Exception as error:  # noqa: BLE001 - a peer's history may end it
        print(f"{contestant.name} at {length_mb} MB: {error!r:.200}")
        return None


async def _last_turns(running: Rig, worker: Worker, log: Path, *, before: int) -> Cost:
    rss = status_mb(worker.process.pid, "VmRSS")
    async with asyncio.timeout(LONGEST_SECONDS):
        handle = await running.start(worker.contestant, turns=before + TURNS)
        waited = asyncio.ensure_future(handle.result())
        while (begin := _turns_asked_for(log)) < before and not waited.done():  # noqa: ASYNC110 - another process's
            await asyncio.sleep(EACH_LOOK_SECONDS)
        cpu, started = worker.cpu_seconds(), time.perf_counter()
        check_result(handle, await waited)
    turns, seconds = before + TURNS - begin, time.perf_counter() - started
    cpu = worker.cpu_seconds() - cpu
    held = status_mb(worker.process.pid, "VmRSS") - rss
    return Cost(cpu / turns * 1000, seconds / turns * 1000, held)


def _turns_asked_for(log: Path) -> int:
    """The last turn that the scripted model was asked for."""
    lines = log.read_text().split()
    return int(lines[-1]) if len(lines) > 1 else 0


def _row(name: str, costs: dict[tuple[str, float], list[Cost]]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for mb in LENGTHS_MB:
        if own := costs.get((name, mb)):
            row[f"cpu_{mb}"] = median(cost.cpu_ms for cost in own)
            row[f"latency_{mb}"] = median(cost.latency_ms for cost in own)
            row[f"held_{mb}"] = median(cost.held_mb for cost in own)
            if f"cpu_{LENGTHS_MB[0]}" in row:
                row[f"growth_{mb}"] = row[f"cpu_{mb}"] / row[f"cpu_{LENGTHS_MB[0]}"]
    return row
