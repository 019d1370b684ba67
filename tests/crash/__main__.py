"""`python -m tests.crash`: the crash test. SEED and KILLS may come from the environment: `make crash KILLS=100`.

With STACK=1 it runs on a real cluster (tests/stack), whose parts fail too: it needs Linux and root, and takes longer.

With MUTANTS=1 it is the crash test that is tested: it has to find eleven wrong everturns. MUTANTS=NAME,NAME: some.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import random
import re
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from everturn import logs
from tests.crash import stack_storm
from tests.crash.invariants import broken
from tests.crash.mutants import MUTANTS
from tests.crash.report import report
from tests.crash.storm import Plan, Storm
from tests.stack.hosts import NotHere
from tests.stack.stack import Stack

MUTANT_PLAN = {"conversations": 24, "kills": 5, "restarts": 1, "patience": 60.0}
"""One takes about a minute."""
STACK = "STACK"


def main() -> int:
    os.environ["REAL_STARTS"] = "1"  # here, workers are started as users start them
    plan = _plan()
    # What Temporal's core has to say of a server that is away is no news here.
    logs.forward_core_logs()
    logging.getLogger("temporalio").setLevel(logging.CRITICAL)
    if wanted := os.environ.get("MUTANTS"):
        return _find_mutants(replace(plan, **MUTANT_PLAN), [*MUTANTS] if wanted == "1" else wanted.split(","))
    print(f"crash test: {plan}", flush=True)  # the seed, even if all hangs
    folder = Path(tempfile.mkdtemp(prefix="everturn-crash-"))
    try:
        storm = _on_the_stack(plan, folder) if STACK in os.environ else Storm(plan, folder)
    except NotHere as error:
        print(f"crash: {error}", file=sys.stderr)
        return 1
    if STACK not in os.environ:
        asyncio.run(storm.run())
    print(report(storm))
    found = broken(storm)
    for what in found:
        print(f"BROKEN: {what}")
    print(f"{len(found)} invariants broken" if found else "every invariant holds")
    if found:
        again = "make crash STACK=1" if STACK in os.environ else "make crash"
        print(f"again: SEED={plan.seed} KILLS={plan.kills} {again}; the logs, the ledger and the database: {folder}")
    else:
        shutil.rmtree(folder)
    return 1 if found else 0


def _on_the_stack(plan: Plan, folder: Path) -> Storm:
    """One that is over. The stack is gone by then, but for its logs."""
    stack = Stack(workers=0, hosts_for_workers=plan.workers, disk_mb=stack_storm.DISK_MB, dynamic=stack_storm.DYNAMIC)
    with stack:
        print(stack.table(), flush=True)
        storm = stack_storm.StackStorm(plan, folder, stack)
        asyncio.run(storm.run())
        print(stack_storm.report(storm), flush=True)
    return storm


def _find_mutants(plan: Plan, names: list[str]) -> int:
    """0 if each was found, by what is wrong with it."""
    print(f"{len(names)} mutants: {plan}", flush=True)
    missed = []
    for name in names:
        with tempfile.TemporaryDirectory(prefix="everturn-crash-", ignore_cleanup_errors=True) as folder:
            storm = Storm(plan, Path(folder), mutant=name)
            asyncio.run(storm.run())
        found = [what for what in broken(storm) if re.search(MUTANTS[name].found, what)]
        print(f"{name}: {'found, ' + found[0][:200] if found else 'MISSED'}", flush=True)
        missed += [] if found else [name]
    print(f"{len(names) - len(missed)} of {len(names)} mutants found" + f"; missed: {', '.join(missed)}" * bool(missed))
    return 1 if missed else 0


def _plan() -> Plan:
    default = replace(Plan(), **(stack_storm.PLAN if STACK in os.environ else {}))
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description="The crash test.")
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SEED") or random.randrange(1_000_000)))
    parser.add_argument("--kills", type=int, default=int(os.environ.get("KILLS") or default.kills))
    parser.add_argument("--conversations", type=int, help="by default as many as the kills are for")
    for name in ("restarts", "workers"):
        parser.add_argument(f"--{name}", type=int, default=getattr(default, name))
    parser.add_argument("--pace", type=float, default=default.pace, help="seconds from kill to kill, on average")
    given = parser.parse_args()
    if given.conversations is None:  # else, few kills are over long before all conversations have begun
        share = given.kills / default.kills
        given.conversations = min(default.conversations, max(default.at_once, round(default.conversations * share)))
    return replace(default, **vars(given))


if __name__ == "__main__":
    sys.exit(main())
