"""A conversation of 2,000 turns with results of 4 KB, beside one of 200."""

from __future__ import annotations

import time
from pathlib import Path

from benchmarks.contestants import EVERTURN
from benchmarks.histories import largest_payload, runs_of
from benchmarks.long.checks import Report, longest_replay, transcript_of
from benchmarks.rig import rig

SHORT, LONG = 200, 2_000
LONGEST_SECONDS = 900.0
MB = 1_000_000


async def run(folder: Path) -> Report:
    report = Report(f"{LONG:,} turns")
    async with rig(db_filename=folder / "temporal.db") as running, running.worker(EVERTURN) as worker:
        sizes = {}
        for turns in (SHORT, LONG):
            started = time.perf_counter()
            handle = await running.hold(EVERTURN, turns=turns, seconds=LONGEST_SECONDS)
            report.tell(f"ms per turn, {turns:,} turns", (time.perf_counter() - started) / turns * 1000, ".1f")
            runs = await runs_of(running.client, handle.id)
            sizes[turns] = sum(run.size for run in runs)
            report.tell(f"history bytes over {len(runs)} runs, {turns:,} turns", sizes[turns])
        peak = worker.peak_rss_mb()
        started = time.perf_counter()
        transcript = await transcript_of(running, handle.id)
        took = time.perf_counter() - started
        report.most(f"history bytes, {LONG:,} turns / {SHORT} turns", sizes[LONG] / sizes[SHORT], 10.5, ".2f")
        records = sum(len(message.encode()) for message in transcript)
        report.same("messages in the transcript", len(transcript), 2 * LONG + 2)
        report.most("history bytes / the records' own", sizes[LONG] / records, 1.4, ".3f")
        report.most("largest payload, bytes", largest_payload(runs), MB)
        report.most("worker's peak memory, MB", peak, 400, ".0f")
        report.most("longest workflow task of a replay, s", await longest_replay(runs, time.perf_counter), 1.0, ".2f")
        report.tell("seconds to read the transcript", took, ".1f")
        (folder / "transcript").write_text("\n".join(transcript))
    return report
