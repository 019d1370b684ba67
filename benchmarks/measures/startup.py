"""From the start of a worker process until it has completed its first workflow task, of a conversation that waits, and
until that conversation of one turn is done: some of what a worker imports, it imports with its first turn."""

from __future__ import annotations

import asyncio
import time
from statistics import median

from temporalio.api.enums.v1 import EventType

from benchmarks.contestants import FLOOR, FLOOR_HTTP, Contestant
from benchmarks.measures import Column, Measured, Plan
from benchmarks.rig import LONGEST_START_SECONDS, Rig, check_result

ROUNDS = 5


async def measure(rig: Rig, plan: Plan) -> Measured:
    samples: dict[str, list[tuple[float, float]]] = {contestant.name: [] for contestant in plan.contestants}
    for contestant in plan.contestants:
        await one_start(rig, contestant)  # not counted: what lies here as source is compiled
    for number in range(ROUNDS):
        for contestant in plan.shuffled(number):
            samples[contestant.name].append(await one_start(rig, contestant))
    first = {name: [one for one, _ in own] for name, own in samples.items()}
    rows = {
        name: {"seconds": median(first[name]), "done": median(end for _, end in own)} for name, own in samples.items()
    }
    columns = [
        Column("seconds", "seconds", ".2f", against=FLOOR.name),
        Column("done", "until its turn is done", ".2f", against=FLOOR.name),
        Column("done", "until its turn is done", ".2f", against=FLOOR_HTTP.name),
    ]
    return Measured("Start-up: process start to first workflow task done", columns, rows, samples=first)


async def one_start(rig: Rig, contestant: Contestant) -> tuple[float, float]:
    """Seconds until the first workflow task is done, and until the conversation is."""
    handle = await rig.start(contestant, turns=1)
    started = time.time()
    async with rig.worker(contestant, warm=False) as worker, asyncio.timeout(LONGEST_START_SECONDS):
        async for event in handle.fetch_history_events(wait_new_event=True):
            if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
                check_result(handle, await handle.result())
                return event.event_time.ToNanoseconds() / 1e9 - started, time.time() - started
        worker.check()
    raise RuntimeError(f"{handle.id} ended without a workflow task")
