"""One conversation at a time: latency, worker CPU, history events and bytes, each per turn.

Interleaved: every round has one conversation of each contestant, and starts with another one. What else the machine
does then hits all of them alike, and the ratios are taken within a round as well as between the medians.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, median, quantiles
from typing import Any

from benchmarks import work
from benchmarks.contestants import Contestant
from benchmarks.rig import Rig

WARM_UPS = 3
LONGEST_CONVERSATION_SECONDS = 30.0


@dataclass(frozen=True)
class Sample:
    """One conversation; everything but the round is per turn."""

    round: int
    latency_ms: float
    """From the call that starts it until its result is here, divided by its turns."""
    worker_cpu_ms: float
    events: float
    history_bytes: float


Samples = dict[str, list[Sample]]


async def measure(
    rig: Rig, contestants: Sequence[Contestant], *, turns: int, rounds: int, until: float = float("inf")
) -> Samples:
    """`rounds` samples of each contestant, in the order of the rounds; fewer if `until` (time.monotonic()) is near."""
    samples: Samples = {contestant.name: [] for contestant in contestants}
    for number in range(-WARM_UPS, rounds):
        if time.monotonic() > until:
            print(f"Out of time: {max(number, 0)} of {rounds} rounds were run.", file=sys.stderr)
            break
        first = number % len(contestants)
        for contestant in (*contestants[first:], *contestants[:first]):
            sample = await _one(rig, contestant, number, turns=turns)
            if number >= 0:
                samples[contestant.name].append(sample)
    return samples


async def _one(rig: Rig, contestant: Contestant, number: int, *, turns: int) -> Sample:
    rig.check(contestant)
    cpu, started = rig.cpu_seconds(contestant), time.perf_counter()
    async with asyncio.timeout(LONGEST_CONVERSATION_SECONDS):
        handle = await rig.start(contestant, turns=turns)
        result = await handle.result()
        seconds = time.perf_counter() - started
    text = result["text"] if isinstance(result, dict) else result
    if text != work.LAST_WORDS:
        raise RuntimeError(f"{contestant.name!r} did not do its work: {handle.id} ended with {result!r:.300}")
    await asyncio.sleep(0.02)  # the worker's own last steps
    cpu = rig.cpu_seconds(contestant) - cpu
    described = await handle.describe()
    return Sample(
        round=number,
        latency_ms=seconds / turns * 1000,
        worker_cpu_ms=cpu / turns * 1000,
        events=described.history_length / turns,
        history_bytes=described.raw_description.workflow_execution_info.history_size_bytes / turns,
    )


def summary(samples: Samples, *, against: str) -> dict[str, dict[str, Any]]:
    """Per contestant: medians, and their ratios to `against`; with the quartiles of the ratios within the rounds."""
    base = samples[against]
    rows: dict[str, dict[str, Any]] = {}
    for name, own in samples.items():
        within = [one.latency_ms / floor.latency_ms for one, floor in zip(own, base, strict=True)]
        latency, cpu = _latency(own), _cpu(own)
        rows[name] = {
            "latency_ms": latency,
            "latency_ratio": latency / _latency(base),
            "latency_ratio_quartiles": [*quantiles(within, n=4)][::2] if len(within) > 1 else within * 2,
            "worker_cpu_ms": cpu,
            "worker_cpu_ratio": cpu / _cpu(base),
            "events": median(one.events for one in own),
            "history_bytes": median(one.history_bytes for one in own),
        }
    return rows


def _latency(samples: list[Sample]) -> float:
    return median(one.latency_ms for one in samples)


def _cpu(samples: list[Sample]) -> float:
    # Not the median: the clock of a process ticks in steps of 10 ms, which only a sum evens out.
    return mean(one.worker_cpu_ms for one in samples)
