"""What a conversation costs on Temporal Cloud, in actions: those of its history, and heartbeats, as the server counts
them.
"""

from __future__ import annotations

import asyncio
import re
from uuid import uuid4

import httpx

from benchmarks import actions
from benchmarks.contestants import FLOOR, Contestant, Handle
from benchmarks.measures import Column, Measured, Plan
from benchmarks.rig import Rig

TURNS = 10
SLOW_SECONDS = 20.0
"""How long one turn is watched."""

_HEARTBEATS = re.compile(
    r'^service_requests\{.*operation="RecordActivityTaskHeartbeat".*service_name="frontend".*\} (\S+)$', re.M
)

NOTES = (
    f"A conversation of {TURNS} turns with one tool call each, and a last reply. Heartbeats of such short turns are "
    f"few: a turn that takes longer has its own column, from {SLOW_SECONDS:.0f} s of one that takes minutes.",
    "Queries and updates that are refused cost one each, and so does whoever looks: they are not part of this.",
)


async def measure(rig: Rig, plan: Plan) -> Measured:
    rows = {contestant.name: await _count(rig, contestant) for contestant in plan.contestants}
    columns = [
        Column("actions", f"actions, {TURNS} turns", ".0f", against=FLOOR.name),
        Column("per_turn", "a turn", ".2f"),
        Column("heartbeats", "heartbeats then", ".0f"),
        Column("minute", "heartbeats a minute, long turn", ".0f"),
        Column("kinds", "of which", "s", better=None),
    ]
    return Measured("Actions on Temporal Cloud", columns, rows, notes=NOTES)


async def _count(rig: Rig, contestant: Contestant) -> dict[str, object]:
    async with rig.worker(contestant):
        before = await _heartbeats(rig)
        handle = await rig.hold(contestant, turns=TURNS)
        beats = await _heartbeats(rig) - before
        found = await actions.actions(rig.client, handle.id)
        minute = await _beats_a_minute(rig, contestant) if contestant.http else None
    kinds = ", ".join(f"{count} {kind}" for kind, count in found.most_common())
    total = found.total()
    return {"actions": total, "per_turn": total / TURNS, "heartbeats": beats, "minute": minute, "kinds": kinds}


async def _beats_a_minute(rig: Rig, contestant: Contestant) -> float:
    slow = await rig.start(contestant, turns=2, slow=uuid4().hex)
    await _until_it_runs(slow)
    begun = await _heartbeats(rig)
    await asyncio.sleep(SLOW_SECONDS)
    beats = await _heartbeats(rig) - begun
    await slow.terminate()
    return beats * 60 / SLOW_SECONDS


async def _until_it_runs(handle: Handle) -> None:
    """An activity of it, with which it is at its slow turn or just before."""
    for _ in range(300):
        if (await handle.describe()).raw_description.pending_activities:
            return
        await asyncio.sleep(0.1)
    raise RuntimeError(f"Nothing of {handle.id} runs.")


async def _heartbeats(rig: Rig) -> float:
    """All that the server has taken so far."""
    async with httpx.AsyncClient() as http:
        shown = (await http.get(rig.metrics_url)).text
    return sum(float(count) for count in _HEARTBEATS.findall(shown))
