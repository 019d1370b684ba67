"""What a conversation costs in its history: bytes and events against turns, over all runs of the conversation."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import Any

from temporalio.client import WorkflowFailureError

from benchmarks.contestants import EVERTURN, FLOOR, Contestant
from benchmarks.histories import Mark, marks_of, runs_of
from benchmarks.measures import Column, Measured, Plan
from benchmarks.rig import Rig

TURNS = (10, 25, 50, 100, 150, 200)
MODEST_TURNS = 100
"""For those who die further on, unless `--to-death` asks for it: there they write 20 to 30 MB."""
COMPARED = (100, 200)
LONGEST_SECONDS = 150.0

HOOKED = replace(
    EVERTURN,
    name="everturn_hooked",
    what="everturn with a hook at each of the four points, and two guardrails: not one event more.",
)


async def measure(rig: Rig, plan: Plan) -> Measured:
    rows: dict[str, dict[str, Any]] = {}
    curves: dict[str, list[tuple[int, int, int]]] = {}
    contestants = [*plan.contestants]
    if EVERTURN in contestants:
        contestants.insert(contestants.index(EVERTURN) + 1, HOOKED)
    for contestant in contestants:
        turns = MODEST_TURNS if contestant.quadratic and not plan.to_death else max(TURNS)
        marks, end = await _converse(rig, contestant, turns)
        at = {mark.turns: mark for mark in marks}
        curves[contestant.name] = [(mark.turns, mark.events, mark.size) for mark in marks]
        rows[contestant.name] = {f"size_{turn}": at[turn].size / 1e6 if turn in at else None for turn in TURNS}
        rows[contestant.name] |= {"events": marks[-1].events / marks[-1].turns, "end": end}
    columns = [
        Column(f"size_{turn}", f"MB at {turn}", ".3g", against=FLOOR.name)
        if turn in COMPARED
        else Column(f"size_{turn}", f"MB at {turn}", ".3g", better=None)
        for turn in TURNS
    ]
    columns += [Column("events", "events per turn"), Column("end", "the end", "s", better=None)]
    notes = (
        [] if plan.to_death else [f"Those that grow with the square stop at {MODEST_TURNS} turns; --to-death goes on."]
    )
    notes += [f"**{HOOKED.name}**: {HOOKED.what}"] if HOOKED in contestants else []
    return Measured("History: bytes and events against turns", columns, rows, notes=notes, samples=curves)


async def _converse(rig: Rig, contestant: Contestant, turns: int) -> tuple[list[Mark], str]:
    """The conversation's marks, and how it ended."""
    async with rig.worker(contestant):
        handle = await rig.start(contestant, turns=turns)
        end = f"{turns} turns"
        try:
            async with asyncio.timeout(LONGEST_SECONDS):
                await handle.result()
        except WorkflowFailureError as error:
            end = f"dies ({type(error.cause).__name__})"
        except TimeoutError:
            end = f"stands still ({LONGEST_SECONDS:.0f} s)"
            with contextlib.suppress(Exception):
                await handle.terminate()
        marks = marks_of(await runs_of(rig.client, handle.id))
        return marks, end if end.endswith("turns") else f"{end} at turn {marks[-1].turns}"
