"""`python -m benchmarks.calls [COMMIT]`: how many Python calls a worker makes for a turn, which, and in how many files.

Unlike its CPU time, that is nearly the same in each run, on a busy machine as on a quiet one: so it is what to work by.
All threads of the worker are counted. What is written in C counts for the function that calls it. With a COMMIT, its
worker is counted as well.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import gc
import importlib
import json
import os
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

COUNT = "count\n"

ROOT = Path(__file__).parents[1]


def serve_counted(name: str, address: str) -> None:
    """A contestant's worker process, as `benchmarks.host` has it. For each line that it reads, it writes one with the
    counts so far."""
    profiles: list[cProfile.Profile] = []

    def begin(*_: object) -> None:
        profiles.append(profile := cProfile.Profile())
        profile.enable()

    threading.Thread(target=_answer, args=(profiles,), daemon=True).start()
    threading.setprofile(begin)
    begin()
    asyncio.run(importlib.import_module(f"benchmarks.contestants.{name}").serve(address))


def _answer(profiles: list[cProfile.Profile]) -> None:
    out = os.fdopen(os.dup(1), "w")
    for _ in iter(lambda: _line(0), ""):
        counts: Counter[str] = Counter()
        for entry in _entries(profiles):
            if not isinstance(entry.code, str):  # else it was counted for the Python function that called it
                builtins = sum(call.callcount for call in entry.calls or () if isinstance(call.code, str))
                counts[_named(entry.code)] += entry.callcount + builtins
        print(json.dumps(counts), file=out, flush=True)
    os._exit(0)


def _entries(profiles: list[cProfile.Profile]) -> list[Any]:
    """Without a garbage collection in between: what it calls lets other threads go on, and then entries are missed."""
    gc.disable()
    try:
        return [entry for profile in profiles for entry in profile.getstats()]
    finally:
        gc.enable()


def _line(file: int) -> str:
    """One line, without a lock that the interpreter's end would wait for."""
    read = b""
    while not read.endswith(b"\n"):
        if not (more := os.read(file, 1)):
            return ""
        read += more
    return read.decode()


def _named(code: Any) -> str:
    return f"{Path(code.co_filename)}:{code.co_firstlineno} {code.co_qualname}"


# ------------------------------------------------------------ the other end


async def main(arguments: argparse.Namespace) -> None:
    from benchmarks.against import checked_out
    from benchmarks.contestants import EVERTURN
    from benchmarks.rig import rig

    async with rig() as running:
        own = await _counted(running, EVERTURN, arguments)
        print(f"everturn: {own.total():,.0f} calls a turn; {_everturns_part(own)}")
        _tell(own, most=arguments.most)
        if arguments.commit:
            with checked_out(arguments.commit) as before:
                others = await _counted(running, before, arguments)
            print(
                f"everturn of {arguments.commit}: {others.total():,.0f}, so {own.total() / others.total():.2f} of it;"
                f" {_everturns_part(others)}"
            )


async def _counted(running: Any, contestant: Any, arguments: argparse.Namespace) -> Counter[str]:
    address = running.client.service_client.config.target_host
    command = [contestant.python, str(Path(__file__)), "--serve", contestant.name, address]
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("TEMPORAL_", "EVERTURN_"))}
    empty = TemporaryDirectory(prefix="everturn-calls-")  # of journals that workers left, which this one would read
    process = await asyncio.create_subprocess_exec(
        *command,
        env={**clean, "SCRIPTED_BASE_URL": running.base_url, "PYTHONPATH": str(ROOT), "TMPDIR": empty.name},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        limit=10_000_000,
    )
    assert process.stdin
    assert process.stdout
    try:
        for _ in range(2):  # until it is warm
            await running.hold(contestant, turns=arguments.turns)
        seen = []
        for _ in range(2):
            await asyncio.sleep(0.5)  # its last steps
            process.stdin.write(COUNT.encode())
            seen.append(Counter(json.loads(await process.stdout.readline())))
            if len(seen) == 1:
                for _ in range(arguments.conversations):
                    await running.hold(contestant, turns=arguments.turns)
    finally:
        process.kill()
        await process.wait()
        empty.cleanup()
    turns = arguments.conversations * arguments.turns
    return Counter({name: (count - seen[0][name]) / turns for name, count in seen[1].items()})


def _everturns_part(counts: Counter[str]) -> str:
    """In words: calls of everturn's own functions, and how many functions in how many files these are."""
    own = {name: count for name, count in counts.items() if count and _group(name) == "everturn"}
    files = {name.partition(":")[0] for name in own}
    return f"everturn's own are {sum(own.values()):,.0f}, of {len(own)} functions in {len(files)} files"


def _tell(counts: Counter[str], *, most: int) -> None:
    """By who wrote it, and then the functions that are called most."""
    groups: Counter[str] = Counter()
    for name, count in counts.items():
        groups[_group(name)] += count
    print("  " + ", ".join(f"{group} {count:,.0f}" for group, count in groups.most_common(14)))
    for name, count in counts.most_common(most):
        print(f"  {count:8.1f}  {name.replace(str(ROOT), '').rpartition('site-packages/')[2]}")


def _group(name: str) -> str:
    if "site-packages/" in name:
        return name.partition("site-packages/")[2].partition("/")[0]
    return next(
        (own for own in ("everturn", "benchmarks") if f"/{own}/" in name.replace(str(ROOT), "")), "Python's own"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.calls", description=__doc__)
    parser.add_argument("commit", nargs="?", help="of this repository, to be counted beside it")
    parser.add_argument("--turns", type=int, default=20, help="of a conversation (20)")
    parser.add_argument("--conversations", type=int, default=3, help="that are counted (3)")
    parser.add_argument("--most", type=int, default=25, help="functions to show (25)")
    parser.add_argument("--serve", nargs=2, metavar=("CONTESTANT", "ADDRESS"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        sys.path[:] = [folder for folder in sys.path if folder != str(Path(__file__).parent)]
        serve_counted(*given.serve)
    else:
        asyncio.run(main(given))
