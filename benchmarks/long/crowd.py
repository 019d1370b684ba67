"""500 conversations of 20 turns, all at once, on one worker: none is lost."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from benchmarks.contestants import EVERTURN
from benchmarks.long.checks import Report
from benchmarks.rig import check_result, rig

CONVERSATIONS, TURNS = 500, 20
LONGEST_SECONDS = 900.0


async def run(folder: Path) -> Report:
    report = Report(f"{CONVERSATIONS} conversations of {TURNS} turns at once")
    async with rig(db_filename=folder / "crowd.db") as running, running.worker(EVERTURN) as worker:
        started, cpu = time.perf_counter(), worker.cpu_seconds()
        handles = await asyncio.gather(
            *(running.start(EVERTURN, turns=TURNS, unlike=str(n)) for n in range(CONVERSATIONS))
        )
        results = [asyncio.create_task(handle.result()) for handle in handles]
        await asyncio.wait(results, timeout=LONGEST_SECONDS)
        seconds = time.perf_counter() - started
        finished = 0
        for handle, task in zip(handles, results, strict=True):
            if task.done():
                check_result(handle, task.result())
                finished += 1
            task.cancel()
        report.same("conversations done", finished, CONVERSATIONS)
        report.tell("seconds", seconds, ".0f")
        report.tell("turns per second", CONVERSATIONS * TURNS / seconds, ".1f")
        report.tell("worker CPU ms per turn", (worker.cpu_seconds() - cpu) / CONVERSATIONS / TURNS * 1000, ".1f")
        report.most("worker's peak memory, MB", worker.peak_rss_mb(), 400, ".0f")
    return report
