"""`python -m benchmarks.long [RUN ...]`: the long runs. Exit status 1 where a bound is missed."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import report
from benchmarks.long import crowd, idle, kills, marathon
from everturn.devserver import find_binary

RUNS = {"marathon": marathon, "kills": kills, "crowd": crowd, "idle": idle}


async def main(arguments: argparse.Namespace) -> int:
    facts = report.machine(await find_binary())
    done = {}
    for name in arguments.runs or RUNS:
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="everturn-long-") as folder:
            done[name] = await RUNS[name].run(Path(folder))
        print(f"{done[name].markdown()}\n\n({time.monotonic() - started:.0f} s)\n", flush=True)
        if arguments.record:
            report.record(f"long {name}", facts, done[name].markdown())
    path = report.save("long", facts, done)
    print(f"Saved as {path}")
    return int(not all(one.kept for one in done.values()))


def parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.long", description=__doc__)
    parser.add_argument("runs", nargs="*", metavar="RUN", help=f"of {', '.join(RUNS)} (all)")
    parser.add_argument("--record", action="store_true", help="write the numbers into benchmarks/RESULTS.md")
    arguments = parser.parse_args(words)
    if unknown := {*arguments.runs} - {*RUNS}:
        parser.error(f"no run {', '.join(unknown)}: choose from {', '.join(RUNS)}")
    return arguments


if __name__ == "__main__":
    sys.exit(asyncio.run(main(parse(sys.argv[1:]))))
