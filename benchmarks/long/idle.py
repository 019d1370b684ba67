"""10,000 conversations that are open and idle: the worker's memory does not grow with them.

What bounds it is the workflow cache (Worker(cached_conversations=1000)) and the prefix cache. Each conversation here
has said 4 KB of its own: the first is full after 1,000 of them; the second, of 16 MiB and not 256, after 2,400.
"""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks import work
from benchmarks.contestants import EVERTURN, everturn_client
from benchmarks.long.checks import Report
from benchmarks.rig import rig, status_mb

MARKS = (500, 1_000, 2_000, 3_000, 5_000, 7_500, 10_000)
AT_ONCE = 100
MAX_PREFIX_MB = 16
FULL = 3_000
"""Here all caches are full."""
MAX_BYTES_EACH = 1_000
"""Of worker memory for each further conversation: noise, beside the 4 KB that it said."""


async def run(folder: Path) -> Report:
    report = Report(f"{MARKS[-1]:,} idle open conversations, EVERTURN_MAX_PREFIX_MB={MAX_PREFIX_MB}")
    async with (
        rig(db_filename=folder / "idle.db") as running,
        running.worker(EVERTURN, EVERTURN_MAX_PREFIX_MB=str(MAX_PREFIX_MB)) as worker,
    ):
        client = everturn_client(running.client)
        started, opened, sizes = time.perf_counter(), 0, {}
        for mark in MARKS:
            while opened < mark:
                batch = range(opened, opened + AT_ONCE)
                await asyncio.gather(*(_open(client, number) for number in batch))
                opened += AT_ONCE
            worker.check()
            sizes[mark] = status_mb(worker.process.pid, "VmRSS")
            report.tell(f"worker's memory with {mark:,}, MB", sizes[mark], ".0f")
        report.tell("seconds to open them", time.perf_counter() - started, ".0f")
        each = (sizes[MARKS[-1]] - sizes[FULL]) * 1e6 / (MARKS[-1] - FULL)
        report.most(f"bytes for each one over {FULL:,}", each, MAX_BYTES_EACH, ",.0f")
        report.most("worker's peak memory, MB", worker.peak_rss_mb(), 400, ".0f")
        first = client.conversation("idle-0")
        await first.send("and more")
        async with asyncio.timeout(30):
            report.same("the first one still answers", await first.reply(), work.LAST_WORDS)
    return report


async def _open(client: Any, number: int) -> None:
    said = f"{work.opening(0, unlike=str(number))}. " + "x" * 4_000
    async with asyncio.timeout(120):
        conversation = await client.start("clerk", said, id=f"idle-{number}", keep_open=timedelta(days=1))
        await conversation.reply()
