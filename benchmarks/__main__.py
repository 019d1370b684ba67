"""`python -m benchmarks [MEASURE ...]`: measures, prints tables, saves JSON and plots; 15 minutes."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time

from benchmarks import evals, inbox, learning, limits, peers, report, scale, tenants
from benchmarks.contestants import ALL, FLOOR
from benchmarks.measures import (
    Measured,
    Plan,
    actions,
    cpu_parts,
    deploy_checks,
    encoding,
    events,
    features,
    history,
    imports,
    latency,
    lengths,
    long_tool,
    parallel,
    reading,
    replay,
    resume,
    slow_turns,
    startup,
    task_kill,
    throughput,
    waiting,
    watchers,
)
from benchmarks.rig import rig
from everturn.devserver import find_binary

MEASURES = {
    "latency": latency,
    "lengths": lengths,
    "encoding": encoding,
    "waiting": waiting,
    "parallel": parallel,
    "events": events,
    "history": history,
    "actions": actions,
    "slow_turns": slow_turns,
    "long_tool": long_tool,
    "features": features,
    "throughput": throughput,
    "startup": startup,
    "imports": imports,
    "resume": resume,
    "task_kill": task_kill,
    "replay": replay,
    "reading": reading,
    "watchers": watchers,
    "deploy_checks": deploy_checks,
}
NAMED = {"cpu_parts": cpu_parts}
"""Run only by their names: this one has to be allowed to look at other processes."""
LIMITS = "limits"
"""Of everturn alone, and by itself: 7 minutes."""
INBOX = "inbox"
"""Of everturn's page alone, in Debian's chromium: 5 minutes."""
TENANTS = "tenants"
"""Of everturn alone: 3 minutes."""
EVALS = "evals"
"""Of everturn alone: 5 minutes."""
LEARNING = "learning"
"""Beside pydantic-ai and pydantic-evals, of the development environment: 8 minutes."""
SCALE = "scale"
"""Of everturn alone, on a cluster of its own (`make stack`): 8 minutes; Linux and root."""
LONGEST_MEASURE_SECONDS = 600.0


async def main(arguments: argparse.Namespace) -> None:
    if arguments.measures == [LIMITS]:
        await limits.main(record=arguments.record)
        return
    if arguments.measures == [INBOX]:
        await inbox.main(record=arguments.record)
        return
    if arguments.measures == [TENANTS]:
        await tenants.main(record=arguments.record)
        return
    if arguments.measures == [LEARNING]:
        await learning.main(record=arguments.record)
        return
    if arguments.measures == [EVALS]:
        await evals.main(conversations=arguments.conversations, record=arguments.record)
        return
    if arguments.measures == [SCALE]:
        await scale.main(seconds=arguments.seconds, at_once=arguments.at_once, record=arguments.record)
        return
    wanted = arguments.only or [one.name for one in ALL]
    contestants = [one for one in ALL if one.name in {*wanted, FLOOR.name}]
    if any(contestant.python == peers.PYTHON for contestant in contestants) or not arguments.only:
        peers.make()
    plan = Plan(
        contestants,
        arguments.rounds,
        arguments.turns,
        to_death=arguments.to_death,
        whole=arguments.whole,
        tool_seconds=arguments.tool_seconds,
        conversations=arguments.conversations,
    )
    facts = report.machine(await find_binary())
    longest = LONGEST_MEASURE_SECONDS * (10 if plan.to_death or plan.whole else 1)
    every: dict[str, Measured] = {}
    for name in arguments.measures or MEASURES:
        started = time.monotonic()
        # A server each: what one measure leaves behind (histories, timers) is no load of the next one.
        try:
            async with asyncio.timeout(longest), rig() as running:
                every[name] = await (MEASURES | NAMED)[name].measure(running, plan)
        except TimeoutError:
            print(f"{name} took longer than {longest:.0f} s, and is left out.", file=sys.stderr)
            continue
        print(f"{report.table(every[name])}\n\n({time.monotonic() - started:.0f} s)\n", flush=True)
    asked, lost = report.goals(every), report.losses([*every.values()])
    print(f"{asked}\n\n{lost}")
    path = report.save("run", facts, every)
    print(f"\nSaved as {path}")
    if peers.INSTALLED.exists():
        await asyncio.to_thread(report.draw, path)
    if arguments.record:
        drawn = [f"![{name}](plots/{name}.png)" for name in every if (report.PLOTS / f"{name}.png").exists()]
        if plan.to_death:  # a run of its own, beside the last ordinary one
            report.record("to death", facts, *map(report.table, every.values()))
        elif arguments.measures or arguments.only:  # not in the place of a run with all
            for name, one in every.items():
                report.record(f"run of {name}", facts, report.table(one))
        else:
            report.record("run", facts, *map(report.table, every.values()), asked, lost, *drawn, report.legend())
        print(f"Recorded in {report.RECORD}")


def parse(words: list[str]) -> argparse.Namespace:
    names = [one.name for one in ALL]
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "measures",
        nargs="*",
        metavar="MEASURE",
        help=f"of {', '.join(MEASURES)} (all), and {', '.join(NAMED)}; or {LIMITS}, {TENANTS}, {INBOX}, {EVALS}, "
        f"{LEARNING} or {SCALE} alone",
    )
    parser.add_argument("--only", nargs="+", choices=names, help="these contestants, and the floor")
    parser.add_argument("--rounds", type=int, default=10, help="of the latency (10)")
    parser.add_argument("--turns", type=int, default=20, help="of the latency's conversations (20)")
    parser.add_argument("--to-death", action="store_true", help="history: 200 turns for all, whoever dies on the way")
    parser.add_argument("--whole", action="store_true", help="throughput: no window (20 minutes)")
    parser.add_argument("--seconds", type=float, default=60.0, help="scale: of each point (60)")
    parser.add_argument("--at-once", type=int, default=60, help="scale: conversations at a time (60)")
    parser.add_argument("--tool-seconds", type=float, default=60.0, help="long_tool: how long the tool takes (60)")
    parser.add_argument("--conversations", type=int, default=200, help="deploy_checks, evals: how many there are (200)")
    parser.add_argument(
        "--record",
        action="store_true",
        help="write the numbers into benchmarks/RESULTS.md",
    )
    arguments = parser.parse_args(words)
    if arguments.measures not in ([LIMITS], [TENANTS], [INBOX], [EVALS], [LEARNING], [SCALE]) and (
        unknown := {*arguments.measures} - {*MEASURES, *NAMED}
    ):
        parser.error(f"no measure {', '.join(unknown)}: choose from {', '.join(MEASURES | NAMED)}")
    return arguments


if __name__ == "__main__":
    asyncio.run(main(parse(sys.argv[1:])))
