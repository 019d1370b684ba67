"""`python -m benchmarks`: runs all measures, prints the tables, and ends within 3 minutes."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from dataclasses import asdict

from benchmarks import report
from benchmarks.contestants import ALL, EVERTURN, FLOOR, FLOOR_HTTP
from benchmarks.measures import turns
from benchmarks.rig import rig
from everturn.devserver import find_binary

BUDGET_SECONDS = 150.0
"""No new round starts later. A hard stop comes LAST_SECONDS after it."""
LAST_SECONDS = 25.0


async def main(arguments: argparse.Namespace) -> None:
    wanted = arguments.only or [one.name for one in ALL]
    contestants = [one for one in ALL if one.name in {*wanted, FLOOR.name}]
    facts = report.machine(await find_binary())
    until = time.monotonic() + arguments.seconds
    async with asyncio.timeout(arguments.seconds + LAST_SECONDS), rig(contestants) as running:
        samples = await turns.measure(running, contestants, turns=arguments.turns, rounds=arguments.rounds, until=until)
    rows = turns.summary(samples, against=FLOOR.name)
    against = tuple(one.name for one in (FLOOR, FLOOR_HTTP) if one.name in rows)
    title = f"One conversation of {arguments.turns} turns, per turn ({len(samples[FLOOR.name])} rounds)"
    sections = [report.table(title, rows, against=against)]
    if EVERTURN.name in rows:
        sections.append(report.losses(rows, name=EVERTURN.name, against=against))
    print("\n\n".join(sections))
    raw = {name: [asdict(sample) for sample in own] for name, own in samples.items()}
    path = report.save({"machine": facts, "turns": arguments.turns, "summary": rows, "samples": raw})
    print(f"\nSaved as {path}")
    if arguments.record:
        report.record(facts, *sections, report.legend())
        print(f"Recorded in {report.RECORD}")


def parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="conversations of each contestant (15)")
    parser.add_argument("--turns", type=int, default=20, help="turns of each conversation (20)")
    parser.add_argument("--only", nargs="+", choices=[one.name for one in ALL], help="these contestants, and the floor")
    parser.add_argument("--seconds", type=float, default=BUDGET_SECONDS, help="no new round after (150)")
    parser.add_argument("--record", action="store_true", help="write the numbers into benchmarks/RESULTS.md")
    return parser.parse_args(words)


if __name__ == "__main__":
    asyncio.run(main(parse(sys.argv[1:])))
