"""`python -m tests.simulation`: many worlds on all cores, a progress bar, a report. Exit status 0 only if every
invariant held.

    python -m tests.simulation --count 5000 --seed 1 --fail-fast
    python -m tests.simulation --situation runs "short runs" --count 100
    python -m tests.simulation --show 50
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence

from tests.simulation.many import Batch, live_through
from tests.simulation.show import story
from tests.simulation.shrink import shrunk
from tests.simulation.speed import alone
from tests.simulation.world import ALL_SITUATIONS, run

EVERY = "all"
"""Of all situations: one world after the other."""

CONVERSATIONS_AT_A_TIME = 2_000
CONVERSATIONS = "so many conversations: each id that is begun counts, those of agents that are asked and forks as well"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seed", type=int, default=1, help="the first world's; of situations, in each million")
    parser.add_argument("--count", type=int, help=CONVERSATIONS)
    parser.add_argument("--seeds", type=int, nargs="*", metavar="SEED", help="these worlds")
    situations = ", ".join([EVERY, *ALL_SITUATIONS])
    among = [EVERY, *ALL_SITUATIONS]
    parser.add_argument("--situation", nargs="*", default=(), choices=among, metavar="NAME", help=situations)
    parser.add_argument("--minutes", type=float, help="for so long at the most")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--fail-fast", action="store_true", help="end with the first broken invariant")
    parser.add_argument("--show", type=int, metavar="SEED", help="one world, step by step, made as small as it gets")
    asked = parser.parse_args(arguments)
    situations_asked = (*ALL_SITUATIONS,) if EVERY in asked.situation else (*asked.situation,)
    if asked.show is not None:
        return show(next(Batch(asked.show, situations=situations_asked).seeds()))
    if asked.count is not None and asked.count < 1:
        parser.error("--count is at least 1")
    count = asked.count or (sys.maxsize if asked.seeds or asked.minutes else CONVERSATIONS_AT_A_TIME)
    options = {"minutes": asked.minutes, "jobs": asked.jobs, "fail_fast": asked.fail_fast}
    batch = Batch(asked.seed, count, chosen=tuple(asked.seeds or ()), situations=situations_asked, **options)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # then, too, it says what was done
    progress = sys.stderr if sys.stderr.isatty() else None
    report = live_through(batch, progress=progress, found=lambda what: print(f"\n{what}", flush=True))
    print(report)
    return 1 if report.broken or report.stopped else 0


def show(seed: int) -> int:
    result = run(seed)
    draw = shrunk(result) if result.broken else result.draw
    result = run(draw.seed, draw=draw, keep=True)
    print("\n".join(story(result)))
    return 1 if result.broken else 0


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # what takes its order from a set is the same in every run
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.simulation", *sys.argv[1:]],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
    alone()
    sys.exit(main())
