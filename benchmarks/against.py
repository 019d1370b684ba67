"""`python -m benchmarks.against COMMIT`: this everturn beside the one of another commit, conversation by conversation.

A machine is never as quick as it was when a number was recorded. So two versions are compared in one run: in each round
both hold a conversation, on the same server, each with a worker process of its own. The other commit is checked out
into a folder of its own, and runs in this environment.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import mean, median, quantiles
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import peers, report
from benchmarks.contestants import ALL, EVERTURN, FLOOR, FLOOR_HTTP, Contestant, by_everturn
from benchmarks.histories import runs_of
from benchmarks.measures import Column, Measured, Plan, actions, history, lengths, resume, throughput
from benchmarks.measures.latency import WARM_UPS, Sample, one_conversation
from benchmarks.measures.startup import one_start
from benchmarks.measures.throughput import LONGEST_SECONDS, TURNS, many_conversations
from benchmarks.measures.throughput import Sample as Crowd
from benchmarks.rig import ROOT, rig
from benchmarks.work import LONG_RESULT_KB
from everturn.devserver import find_binary

BEFORE = "everturn_before"

MEASURES = {"throughput": throughput, "history": history, "actions": actions, "resume": resume}
"""Those of `make bench` that take any two contestants."""

CROWD_SECONDS = 7.0

BESIDE = "everturn_beside"
"""A contestant of any commit's that takes a task queue of its own."""


@contextmanager
def checked_out(commit: str) -> Iterator[Contestant]:
    """The everturn of that commit, to be hosted by `benchmarks.host` of that commit."""
    with TemporaryDirectory(prefix="everturn-before-") as temporary:
        folder, python = Path(temporary, "tree"), Path(temporary, "python")
        _git("worktree", "add", "--quiet", "--detach", str(folder), commit)
        try:
            contestants = folder / "benchmarks" / "contestants"
            hosted = (contestants / f"{BESIDE}.py").read_text().replace(BESIDE, BEFORE)
            (contestants / f"{BEFORE}.py").write_text(hosted)
            same_work = (ROOT / "benchmarks" / "work.py").read_text()
            (folder / "benchmarks" / "work.py").write_text(same_work)
            python.write_text(f'#!/bin/sh\ncd "{folder}" && PYTHONPATH="{folder}" exec "{sys.executable}" "$@"\n')
            python.chmod(0o755)
            yield Contestant(BEFORE, "Conversation", f"everturn of {commit}", by_everturn, python=str(python))
        finally:
            _git("worktree", "remove", "--force", str(folder))


def _git(*command: str) -> None:
    subprocess.run(["git", *command], cwd=ROOT, check=True, timeout=120)


async def measure(before: Contestant, plan: Plan, *, commit: str) -> Measured:
    samples: dict[str, list[Sample]] = {contestant.name: [] for contestant in plan.contestants}
    async with rig() as running, AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(running.worker(contestant)) for contestant in plan.contestants]
        by_name = {worker.contestant.name: worker for worker in workers}
        for number in range(-WARM_UPS, plan.rounds):
            for contestant in plan.shuffled(number):
                sample = await one_conversation(running, by_name[contestant.name], number, turns=plan.turns)
                if number >= 0:
                    samples[contestant.name].append(sample)
    title = f"Beside {commit}: one conversation of {plan.turns} turns ({plan.rounds} rounds)"
    columns = [
        Column("latency_ms", "ms per turn", against=before.name),
        Column("quartiles", "quartiles of the rounds' ratios", "s", better=None),
        Column("cpu_ms", "worker CPU ms", against=before.name),
    ]
    return Measured(title, columns, {name: _row(own, samples[before.name]) for name, own in samples.items()})


async def measure_throughput(
    before: Contestant, plan: Plan, *, commit: str, at_once: int, long_results: int
) -> Measured:
    """Each with a fresh server and worker in each round, since what the other leaves there slows it down."""
    window, turns, kind = CROWD_SECONDS, TURNS, "conversations"
    if long_results:  # until all are done: in the first seconds, their transcripts are short
        window, turns = LONGEST_SECONDS, 2 * long_results
        kind = (
            f"conversations with transcripts of {long_results * LONG_RESULT_KB / 1000:.1f} MB after half their turns,"
        )
    samples: dict[str, list[Crowd]] = {contestant.name: [] for contestant in plan.contestants}
    for number in range(plan.rounds):
        for contestant in plan.shuffled(number):
            async with rig() as running:
                sample = await many_conversations(
                    running, contestant, at_once, window, turns=turns, long_results=long_results
                )
            samples[contestant.name].append(sample)
    title = f"Beside {commit}: {at_once} {kind} at once ({plan.rounds} rounds)"
    columns = [
        Column("rate", "turns/s", against=before.name, better="high"),
        Column("quartiles", "quartiles of the rounds' ratios", "s", better=None),
        Column("cpu_ms", "worker CPU ms/turn", against=before.name),
    ]
    rows = {name: _crowds_row(own, samples[before.name]) for name, own in samples.items()}
    return Measured(title, columns, rows)


async def measure_startup(before: Contestant, plan: Plan, *, commit: str) -> Measured:
    samples: dict[str, list[tuple[float, float]]] = {contestant.name: [] for contestant in plan.contestants}
    async with rig() as running:
        for number in range(-1, plan.rounds):
            for contestant in plan.shuffled(number):
                sample = await one_start(running, contestant)
                if number >= 0:  # the first is not counted: what lies here as source is compiled
                    samples[contestant.name].append(sample)
    columns = [
        Column("seconds", "first workflow task done, s", ".2f", against=before.name),
        Column("quartiles", "quartiles of the rounds' ratios", "s", better=None),
        Column("done", "a turn done, s", ".2f", against=before.name),
        Column("done_quartiles", "quartiles", "s", better=None),
    ]
    rows = {
        name: {
            "seconds": median(first for first, _ in own),
            "quartiles": _quartiles(
                [mine[0] / theirs[0] for mine, theirs in zip(own, samples[before.name], strict=True)]
            ),
            "done": median(done for _, done in own),
            "done_quartiles": _quartiles(
                [mine[1] / theirs[1] for mine, theirs in zip(own, samples[before.name], strict=True)]
            ),
        }
        for name, own in samples.items()
    }
    return Measured(f"Beside {commit}: start-up ({plan.rounds} rounds)", columns, rows)


async def measure_history(before: Contestant, plan: Plan, *, commit: str) -> Measured:
    """What a conversation without children, approvals or hooks writes: the medians of some."""
    written: dict[str, list[tuple[int, int]]] = {contestant.name: [] for contestant in plan.contestants}
    async with rig() as running, AsyncExitStack() as stack:
        for contestant in plan.contestants:
            await stack.enter_async_context(running.worker(contestant))
        for number in range(plan.rounds):
            for contestant in plan.shuffled(number):
                handle = await running.hold(contestant, turns=plan.turns)
                events = [event for run in await runs_of(running.client, handle.id) for event in run.history.events]
                written[contestant.name].append((len(events), sum(event.ByteSize() for event in events)))
    columns = [
        Column("events", "events", ".0f", against=before.name),
        Column("size", "bytes", ",.0f", against=before.name),
    ]
    rows = {
        name: {"events": median(events for events, _ in own), "size": median(size for _, size in own)}
        for name, own in written.items()
    }
    title = f"Beside {commit}: the history of {plan.turns} turns ({plan.rounds} rounds)"
    return Measured(title, columns, rows)


async def measure_as_bench(before: Contestant, plan: Plan, names: list[str]) -> str:
    """Tables as `make bench` has them, with the other commit's row beside this one's, and without the peers."""
    beside = replace(plan, contestants=(FLOOR, FLOOR_HTTP, before, EVERTURN))
    tables: list[str] = []
    for name in names:
        async with rig() as running:
            tables.append(report.table(await MEASURES[name].measure(running, beside)))
        print(tables[-1], flush=True)
    return "\n\n".join(tables)


def _crowds_row(own: list[Crowd], before: list[Crowd]) -> dict[str, Any]:
    rates, before_rates = ([one.turns / one.seconds for one in crowd] for crowd in (own, before))
    return {
        "rate": median(rates),
        "quartiles": _quartiles([rate / other for rate, other in zip(rates, before_rates, strict=True)]),
        "cpu_ms": median(1000 * one.worker_cpu_seconds / one.turns for one in own),
    }


def _quartiles(ratios: list[float]) -> str:
    low, middle, high = quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    return f"{low:.2f}, {middle:.2f}, {high:.2f}"


def _row(own: list[Sample], before: list[Sample]) -> dict[str, Any]:
    within = [one.latency_ms / other.latency_ms for one, other in zip(own, before, strict=True)]
    return {
        "latency_ms": median(one.latency_ms for one in own),
        "quartiles": _quartiles(within),
        "cpu_ms": mean(one.worker_cpu_ms for one in own),
    }


def _peers_here() -> list[Contestant]:
    return [one for one in ALL if one.python == peers.PYTHON] if peers.INSTALLED.exists() else []


async def main(arguments: argparse.Namespace) -> None:
    facts = report.machine(await find_binary())
    with checked_out(arguments.commit) as before:
        plan = Plan([before, EVERTURN], arguments.rounds, arguments.turns)
        if arguments.measures:
            name, table = "against_measures", await measure_as_bench(before, plan, arguments.measures)
        elif arguments.start_up:
            name, table = "against_startup", report.table(await measure_startup(before, plan, commit=arguments.commit))
        elif arguments.history:
            written = await measure_history(before, plan, commit=arguments.commit)
            name, table = "against_history", report.table(written)
        elif arguments.lengths:
            plan = replace(plan, contestants=(FLOOR_HTTP, *plan.contestants, *_peers_here()))
            by_length = await lengths.costs_of(plan)
            table = report.table(by_length)
            name = "against_lengths"
            if peers.INSTALLED.exists():
                report.draw(report.save("lengths", facts, {"lengths": by_length}))
                table += "\n\n![lengths](plots/lengths.png)"
        elif arguments.at_once:
            crowds = await measure_throughput(
                before, plan, commit=arguments.commit, at_once=arguments.at_once, long_results=arguments.long_results
            )
            name = "against_long_throughput" if arguments.long_results else "against_throughput"
            table = report.table(crowds)
        else:
            name, table = "against", report.table(await measure(before, plan, commit=arguments.commit))
    if not arguments.measures:
        print(table)
    if arguments.record:
        report.record(name, facts, table)
        print(f"Recorded in {report.RECORD}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.against", description=__doc__)
    parser.add_argument("commit", help="of this repository")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--at-once", type=int, help="throughput instead: so many conversations; 8 rounds are 4 minutes")
    parser.add_argument(
        "--long-results", type=int, default=0, help="with --at-once: so many of the first results have 32 KB"
    )
    parser.add_argument("--history", action="store_true", help="what a conversation writes instead: events and bytes")
    parser.add_argument("--start-up", action="store_true", help="how long a worker's start takes instead")
    parser.add_argument(
        "--lengths", action="store_true", help="what a turn costs by the length of its transcript instead"
    )
    parser.add_argument(
        "--measures", nargs="+", choices=MEASURES, help="measures of `make bench` instead, without its peers"
    )
    parser.add_argument("--record", action="store_true", help="write the numbers into benchmarks/RESULTS.md")
    asyncio.run(main(parser.parse_args()))
