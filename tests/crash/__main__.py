"""`python -m tests.crash`: the crash test. SEED and KILLS may come from the environment: `make crash KILLS=100`."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import random
import shutil
import sys
import tempfile
from pathlib import Path

from everturn import logs
from tests.crash.invariants import broken
from tests.crash.report import report
from tests.crash.storm import Plan, Storm


def main() -> int:
    plan = _plan()
    # What Temporal's core has to say of a server that is away is no news here.
    logs.forward_core_logs()
    logging.getLogger("temporalio").setLevel(logging.CRITICAL)
    print(f"crash test: {plan}", flush=True)  # the seed, even if all hangs
    folder = Path(tempfile.mkdtemp(prefix="everturn-crash-"))
    storm = Storm(plan, folder)
    asyncio.run(storm.run())
    print(report(storm))
    found = broken(storm)
    for what in found:
        print(f"BROKEN: {what}")
    print(f"{len(found)} invariants broken" if found else "every invariant holds")
    if found:
        print(f"again: SEED={plan.seed} KILLS={plan.kills} make crash; the logs, the ledger and the database: {folder}")
    else:
        shutil.rmtree(folder)
    return 1 if found else 0


def _plan() -> Plan:
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description="The crash test.")
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SEED") or random.randrange(1_000_000)))
    parser.add_argument("--kills", type=int, default=int(os.environ.get("KILLS") or Plan.kills))
    for name in ("conversations", "restarts", "workers"):
        parser.add_argument(f"--{name}", type=int, default=getattr(Plan, name))
    parser.add_argument("--pace", type=float, default=Plan.pace, help="seconds from kill to kill, on average")
    return Plan(**vars(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
