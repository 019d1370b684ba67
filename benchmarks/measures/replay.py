"""What it costs to replay a conversation, as a worker does that has it no longer in memory: CPU per turn."""

from __future__ import annotations

import time
from statistics import median

from benchmarks import replaying
from benchmarks.contestants import EVERTURN, FLOOR
from benchmarks.histories import marks_of, runs_of
from benchmarks.measures import Column, Measured, Plan
from benchmarks.rig import Rig

BARE = "floor_bare"
"""The floor's history, replayed without the sandbox, as everturn's is: what no workflow of so many events is below."""

TURNS = 50
ROUNDS = 15

COLD_CONVERSATIONS, COLD_TURNS = 60, 50
"""What a cold worker was asked to replay in 3 s of CPU."""


async def measure(rig: Rig, plan: Plan) -> Measured:
    names = {contestant.name for contestant in plan.contestants}
    histories, turns = {}, {}
    for contestant in (FLOOR, EVERTURN):
        if contestant.name in names:
            async with rig.worker(contestant):
                handle = await rig.hold(contestant, turns=TURNS)
            runs = await runs_of(rig.client, handle.id)
            histories[contestant.name] = runs[0].history
            turns[contestant.name] = len(marks_of(runs[:1]))
    if FLOOR.name in histories:
        histories[BARE], turns[BARE] = histories[FLOOR.name], turns[FLOOR.name]
    samples: dict[str, list[float]] = {name: [] for name in histories}
    for _ in range(ROUNDS):
        for name, history in histories.items():
            started = time.process_time()
            await replaying.replayer(name).replay_workflow(history)
            samples[name].append((time.process_time() - started) * 1000 / turns[name])
    cold = COLD_CONVERSATIONS * COLD_TURNS / 1000
    rows = {name: {"ms": (ms := median(own)), "cold": ms * cold} for name, own in samples.items()}
    columns = [
        Column("ms", "ms of CPU per turn", ".2f", against=FLOOR.name),
        Column("ms", "the same", ".2f", against=BARE),
        Column("cold", f"s of CPU for {COLD_CONVERSATIONS} conversations of {COLD_TURNS} turns"),
    ]
    notes = [
        f"**{BARE}**: the floor without a sandbox, as everturn runs. A worker that begins cold replays each "
        "conversation. The last column is worked out from the first."
    ]
    return Measured(f"Replay: a conversation of {TURNS} turns", columns, rows, notes, samples=samples)
