"""What a conversation with a tool that takes minutes costs on Temporal Cloud, in actions, as the server counts them.

Each row has a server and a worker of its own, both at the same time: nearly all of it is waiting.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from benchmarks.contestants import EVERTURN
from benchmarks.measures import Column, Measured, Plan
from benchmarks.measures.slow_turns import actions
from benchmarks.rig import Rig, check_result, rig

MINUTES = 10
"""To which what was counted is extended."""

ROWS = {name: replace(EVERTURN, name=f"everturn_{name}") for name in ("quick", "thrifty")}


async def measure(_: Rig, plan: Plan) -> Measured:
    found = await asyncio.gather(*(_count(name, plan.tool_seconds) for name in ROWS))
    columns = [
        Column("actions", f"actions, {plan.tool_seconds:.0f} s", ".0f"),
        Column("heartbeats", "of which heartbeats", ".0f"),
        Column("minute", "heartbeats a minute"),
        Column("extended", f"actions, {MINUTES} minutes, worked out", ".0f"),
    ]
    notes = [
        f"A conversation of one call, whose tool takes {plan.tool_seconds:.0f} s, and a last reply. The last column is "
        f"not measured: all that are no heartbeats, and {MINUTES} times those of a minute. "
        f"`--tool-seconds {60 * MINUTES}` measures it."
    ]
    rows = {ROWS[name].name: one for name, one in zip(ROWS, found, strict=True)}
    return Measured("Actions of a long tool", columns, rows, notes=notes)


async def _count(heartbeats: str, seconds: float) -> dict[str, float]:
    more = {"EVERTURN_HEARTBEATS": heartbeats, "TOOL_TAKES": str(seconds)}
    async with rig() as own, own.worker(EVERTURN, warm=False, **more):
        before = await actions(own)
        handle = await own.start(EVERTURN, turns=1)
        async with asyncio.timeout(seconds + 60):
            check_result(handle, await handle.result())
        after = await actions(own)
    made = {kind: count - before.get(kind, 0.0) for kind, count in after.items()}
    beats = sum(count for kind, count in made.items() if "Heartbeat" in kind)
    total, minute = sum(made.values()), beats * 60 / seconds
    return {"actions": total, "heartbeats": beats, "minute": minute, "extended": total - beats + MINUTES * minute}
