"""`python -m benchmarks scale`: load on a real cluster (tests/stack), with 1, 2 and 4 workers; Linux, root, 8 minutes.

Clients, workers and the model are processes of their own. CPU is counted for each part, so that it can be said what
more of them would need: `capacity.py`, and docs/scale.md.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from statistics import mean, quantiles
from typing import Any

from temporalio.api.enums.v1 import EventType, PendingActivityState
from temporalio.client import Client, WorkflowHandle

from benchmarks import capacity, report, work
from benchmarks.contestants import everturn_client
from benchmarks.rig import RESULTS, ROOT, cpu_seconds, machine_cpu_seconds, spawn, status_mb, stop
from everturn.devserver import find_binary
from tests.stack.cluster import SERVICES
from tests.stack.hosts import HERE, Host, Running
from tests.stack.stack import Stack

FLEETS = (1, 2, 4)
CLIENTS = 2
TURNS = 5
"""With a call each, then the last one."""
WARM_SECONDS = 10.0
IDLE = 400
RUNNING = 150
"""At most as many as a worker runs at a time."""
TAKES_SECONDS = 90.0
"""Longer than it takes to start them all."""
AT_A_TIME = 50
SAMPLE = 40
"""Conversations whose histories are read."""
PORT, SLOW_PORT = 8010, 8011
PAGE = ROOT / "docs" / "scale.md"
EACH_DAY = 1_000_000
TURNS_EACH = 20
"""Of a conversation, in what is worked out for a million of them."""
LONGEST_SECONDS = 120.0
STARTED = PendingActivityState.PENDING_ACTIVITY_STATE_STARTED


@dataclass(frozen=True)
class Point:
    workers: int
    at_once: int
    seconds: float
    conversations: int
    turns: int
    turn_p50_ms: float
    turn_p99_ms: float
    cpu_ms: dict[str, float]
    """Of a turn, by part."""
    busy: float
    """Of the machine, all that runs on it included."""

    @property
    def turns_a_second(self) -> float:
        return self.turns / self.seconds

    @property
    def all_cpu_ms(self) -> float:
        return sum(self.cpu_ms.values())

    def row(self) -> str:
        cells = [str(self.workers), str(self.at_once), f"{self.conversations / self.seconds:.1f}"]
        cells += [f"{self.turns_a_second:.1f}", f"{self.turn_p50_ms:.0f}", f"{self.turn_p99_ms:.0f}"]
        cells += [f"{self.all_cpu_ms:.1f}", f"{self.busy:.0%}"]
        return f"| {' | '.join(cells)} |"


HEAD = """| workers | at a time | conversations/s | turns/s | ms per turn, p50 | p99 | CPU ms | machine busy |
| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"""


async def main(*, seconds: float, at_once: int, record: bool) -> None:
    RESULTS.mkdir(exist_ok=True)
    facts = report.machine(await find_binary())
    with Stack(workers=0, hosts_for_workers=max(FLEETS), say=lambda what: print(what, flush=True)) as stack:
        print(f"{stack.table()}\n", flush=True)
        with _model(PORT):
            before = stack.database.sizes()
            points = []
            for workers in FLEETS:
                points.append(await _point(stack, workers, seconds=seconds, at_once=at_once))
                print(f"{workers} workers: {points[-1].turns_a_second:.1f} turns a second", flush=True)
            turn = await _turn(stack, points, before)
            sections = [_loads(points), _parts(points), _turns(turn), _checked(points), _worked_out(turn)]
            print("\n\n".join(sections), flush=True)
            idle = await _idle_memory(stack)
        with _model(SLOW_PORT, MODEL_TAKES=str(TAKES_SECONDS)):
            memory = _memories([*idle, await _running_memory(stack)])
    print(f"\n{memory}")
    sections.insert(3, memory)
    if record:
        report.record("scale", facts, "## A real cluster: PostgreSQL, two of each of Temporal's services", *sections)
        report.record("scale", facts, *sections, path=PAGE)
        print(f"Recorded in {report.RECORD} and {PAGE}")


# ---------------------------------------------------------------- load


async def _point(stack: Stack, workers: int, *, seconds: float, at_once: int) -> Point:
    with ExitStack() as running:
        fleet = [running.enter_context(_worker(stack, host, PORT)) for host in stack.worker_hosts[:workers]]
        await _until_started(fleet)
        clients = [
            spawn(
                sys.executable, "-m", "benchmarks.scale_client", stack.address, str(WARM_SECONDS + seconds),
                str(at_once // CLIENTS), str(TURNS), f"scale-{workers}-{number}",
                log=RESULTS / f"scale-client-{number}.log", stdout=subprocess.PIPE,
            )
            for number in range(CLIENTS)
        ]  # fmt: skip
        for client in clients:
            running.callback(stop, client)
        await asyncio.sleep(WARM_SECONDS)
        pids = [client.pid for client in clients]
        began, cpu, machine = time.time(), _cpu(stack, pids), machine_cpu_seconds()
        await asyncio.sleep(seconds)
        ended, cpu_then = time.time(), _cpu(stack, pids)
        busy = (machine_cpu_seconds() - machine) / (ended - began) / (os.cpu_count() or 1)
        async with asyncio.timeout(LONGEST_SECONDS):
            said = await asyncio.gather(*(asyncio.to_thread(client.communicate) for client in clients))
        held = [tuple(record) for out, _ in said for record in json.loads(out)]
    # One that lies partly in the window counts with that part: long ones would be missed at both ends.
    share = [_overlap(start, end, began, ended) / (end - start) for _, start, end in held]
    turns = sum(share) * (TURNS + 1)
    inside = [one[0] for one, part in zip(held, share, strict=True) if part]
    client = await Client.connect(stack.address)
    times = [ms for name in inside[:: max(1, len(inside) // SAMPLE)] for ms in await _turn_times(client, name)]
    cuts = quantiles(times, n=100)
    return Point(
        workers, at_once, ended - began, round(sum(share)), round(turns), cuts[49], cuts[98],
        {part: (cpu_then[part] - cpu[part]) * 1000 / turns for part in cpu}, busy,
    )  # fmt: skip


def _overlap(start: float, end: float, began: float, ended: float) -> float:
    return max(0.0, min(end, ended) - max(start, began))


async def _turn_times(client: Client, conversation_id: str) -> list[float]:
    """Milliseconds from one model call to the next, and to the end."""
    history = await client.get_workflow_handle(conversation_id).fetch_history()
    times = [
        event.event_time.ToDatetime().timestamp()
        for event in history.events
        if (
            event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
            and event.activity_task_scheduled_event_attributes.activity_type.name == "call_model"
        )
        or event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED
    ]
    return [(after - before) * 1000 for before, after in pairwise(times)]


def _cpu(stack: Stack, clients: list[int]) -> dict[str, float]:
    """Seconds so far, by part."""
    parts = {"PostgreSQL": _of(stack.database_host), "load balancer": _of(stack.balancer_host)}
    for service in SERVICES:
        parts[f"Temporal's {service}"] = sum(_of(host) for name, host in stack.service_hosts if name == service)
    parts["everturn's workers"] = sum(map(_of, stack.worker_hosts))
    parts["clients"] = sum(map(cpu_seconds, clients))
    return parts


def _of(host: Host) -> float:
    """With what its ended children took: PostgreSQL's connections come and go."""
    total = 0.0
    for pid in host.pids():
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except FileNotFoundError:
            continue
        total += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return total


@contextmanager
def _worker(stack: Stack, host: Host, port: int, **more: str) -> Iterator[Running]:
    folder = RESULTS / host.name
    folder.mkdir(exist_ok=True)
    running = host.start(
        sys.executable,
        str(ROOT / "worker.py"),
        log=RESULTS / f"{host.name}-{port}-{time.time():.0f}.log",
        folder=ROOT,
        environment={
            "TEMPORAL_ADDRESS": stack.address,
            "EVERTURN_AGENTS": "benchmarks.contestants.everturn:clerk",
            "EVERTURN_TASK_QUEUE": "everturn",
            "EVERTURN_LOG": "json",
            "SCRIPTED_BASE_URL": f"http://{HERE}:{port}/v1",
            "PYTHONPATH": str(ROOT),
            "TMPDIR": str(folder.resolve()),
            **more,
        },
    )
    try:
        yield running
    finally:
        running.kill()


async def _until_started(fleet: list[Running]) -> None:
    async with asyncio.timeout(LONGEST_SECONDS):
        while lacking := [one for one in fleet if "worker.started" not in one.log.read_text()]:
            for one in lacking:
                if not one.alive:
                    raise RuntimeError(f"{one.name} ended: {one.last_lines()}")
            await asyncio.sleep(0.1)


@contextmanager
def _model(port: int, **environment: str) -> Iterator[None]:
    command = (sys.executable, "-m", "everturn.testing", "benchmarks/script.py", "--host", HERE, "--port", str(port))
    process = spawn(*command, log=RESULTS / f"scale-model-{port}.log", **environment)
    try:
        yield
    finally:
        stop(process)


# ---------------------------------------------------------------- what a turn is, and what a conversation holds


async def _turn(stack: Stack, points: list[Point], before: tuple[int, int]) -> capacity.Turn:
    client = await Client.connect(stack.address)
    sizes, events = [], []
    async for workflow in client.list_workflows("ExecutionStatus = 'Completed'", limit=SAMPLE):
        described = (await client.get_workflow_handle(workflow.id).describe()).raw_description.workflow_execution_info
        sizes.append(described.history_size_bytes / (TURNS + 1))
        events.append(described.history_length / (TURNS + 1))
    count = (await client.count_workflows("WorkflowType = 'Conversation'")).count
    now = stack.database.sizes()
    tables, log = ((then - first) / (count * (TURNS + 1)) for then, first in zip(now, before, strict=True))
    parts = {part: mean(point.cpu_ms[part] for point in points) for part in points[0].cpu_ms}
    return capacity.Turn(parts, mean(events), mean(sizes), tables, log)


async def _idle_memory(stack: Stack) -> list[tuple[str, str]]:
    """With all of them in the worker's caches, which hold 1,000."""
    client = everturn_client(await Client.connect(stack.address))
    with _worker(stack, stack.worker_hosts[0], PORT) as worker:
        await _until_started([worker])
        await asyncio.gather(*(client.run("clerk", work.opening(2), id=f"warm-{number}") for number in range(20)))
        empty = status_mb(worker.process.pid, "VmRSS")
        for number in range(0, IDLE, AT_A_TIME):
            ids = [f"idle-{one}" for one in range(number, number + AT_A_TIME)]
            opening = [
                client.start("clerk", work.opening(TURNS, unlike=id_), id=id_, keep_open=timedelta(hours=1))
                for id_ in ids
            ]
            for conversation in await asyncio.gather(*opening):
                await conversation.reply()
        each = (status_mb(worker.process.pid, "VmRSS") - empty) / IDLE
    said = f"an open, idle conversation of {TURNS + 1} turns and {TURNS} results of 4 KB (of {IDLE})"
    return [("a worker that has had 20 conversations", f"{empty:.0f} MB"), (said, f"{each * 1000:.0f} KB")]


async def _running_memory(stack: Stack) -> tuple[str, str]:
    client = everturn_client(await Client.connect(stack.address))

    async def run(number: int) -> None:
        conversation = await client.start("clerk", work.opening(1), id=f"running-{number}")
        handle = client.temporal.get_workflow_handle(conversation.id)
        async with asyncio.timeout(LONGEST_SECONDS):
            while not await _is_at_work(handle):  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.5)

    with _worker(stack, stack.worker_hosts[0], SLOW_PORT) as worker:
        await _until_started([worker])
        await asyncio.gather(*map(run, range(10)))
        few = status_mb(worker.process.pid, "VmRSS")
        await asyncio.gather(*map(run, range(10, 10 + RUNNING)))
        each = (status_mb(worker.process.pid, "VmRSS") - few) / RUNNING
    return f"one whose model turn is under way (of {RUNNING})", f"{each * 1000:.0f} KB"


async def _is_at_work(handle: WorkflowHandle[Any, Any]) -> bool:
    pending = (await handle.describe()).raw_description.pending_activities
    return any(entry.state == STARTED for entry in pending)


def _memories(rows: list[tuple[str, str]]) -> str:
    lines = [f"| {what} | {size} |" for what, size in rows]
    return "\n".join(["### A worker's memory", "", "| | |", "| --- | ---: |", *lines])


# ---------------------------------------------------------------- what is said of it


def _loads(points: list[Point]) -> str:
    about = f"Conversations of {TURNS + 1} turns and {TURNS} calls; a model that answers at once; {CLIENTS} client "
    about += "processes. CPU ms: of all parts, for a turn."
    return "\n".join(["### Load", "", about, "", HEAD, *(point.row() for point in points)])


def _parts(points: list[Point]) -> str:
    heads = ["CPU ms per turn", *(f"{point.workers} workers" for point in points)]
    lines = [f"| {' | '.join(heads)} |", f"| --- {'| ---: ' * len(points)}|"]
    for part in points[0].cpu_ms:
        lines.append(f"| {part} | {' | '.join(f'{point.cpu_ms[part]:.1f}' for point in points)} |")
    return "\n".join(["### Where the time goes", "", *lines])


def _turns(turn: capacity.Turn) -> str:
    rows = [
        f"| events | {turn.events:.1f} |",
        f"| bytes of history | {turn.history_bytes:,.0f} |",
        f"| bytes by which PostgreSQL's tables and indexes grow | {turn.database_bytes:,.0f} |",
        f"| bytes that it writes to its log | {turn.log_bytes:,.0f} |",
    ]
    return "\n".join(["### A turn", "", "| | |", "| --- | ---: |", *rows])


def _checked(points: list[Point]) -> str:
    """Each point, worked out from the other ones: what a turn took there, and the cores that all parts had here."""
    lines = ["| workers | cores that all parts had | turns/s | by the model, from the other points | off by |"]
    lines.append("| ---: | ---: | ---: | ---: | ---: |")
    for point in points:
        cores = point.turns_a_second * point.all_cpu_ms / 1000
        model = capacity.most(mean(one.all_cpu_ms for one in points if one is not point), cores=cores)
        off = model / point.turns_a_second - 1
        lines.append(f"| {point.workers} | {cores:.2f} | {point.turns_a_second:.1f} | {model:.1f} | {off:+.0%} |")
    return "\n".join(["### The model and the points", "", *lines])


def _worked_out(turn: capacity.Turn) -> str:
    found = capacity.need(turn, turns_a_second=capacity.a_day(EACH_DAY, TURNS_EACH))
    rows = [f"| turns a second | {found.turns_a_second:.0f} |", f"| events a second | {found.events_a_second:,.0f} |"]
    rows += [f"| cores, {part} | {cores:.1f} |" for part, cores in found.cores.items() if part != "clients"]
    rows += [f"| GB of histories a day | {found.history_gb_a_day:.0f} |"]
    rows += [f"| GB in the database a day | {found.database_gb_a_day:.0f} |"]
    rows += [f"| MB a second to its log | {found.log_mb_a_second:.1f} |", f"| shards | {found.shards} |"]
    title = f"### A million conversations a day, of {TURNS_EACH} turns; cores {capacity.BUSY:.0%} busy"
    return "\n".join([title, "", "| | |", "| --- | ---: |", *rows])
