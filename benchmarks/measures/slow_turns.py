"""What a conversation whose turns take seconds costs on Temporal Cloud, in actions: as the server itself counts them,
in its metric `action`, heartbeats included.

Each row has a server, a model and a worker of its own, all at the same time: nearly all of it is waiting.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, replace

import httpx

from benchmarks import peers, work
from benchmarks.contestants import EVERTURN, OPENAI_AGENTS, PYDANTIC_AI, Contestant, Handle, everturn_client
from benchmarks.measures import Column, Measured, Plan
from benchmarks.measures.events import hear
from benchmarks.rig import Rig, check_result, rig

TURNS = 20
SECONDS = 8.0
"""Of each turn."""

LONGEST_SECONDS = 400.0

_ACTIONS = re.compile(r'^action\{.*action_type="([^"]*)".*namespace="default".*\} (\S+)$', re.M)


@dataclass(frozen=True)
class Row:
    contestant: Contestant
    heartbeats: str = ""
    stream: bool = False
    live: str = ""
    """As EVERTURN_LIVE."""


ROWS = (
    Row(EVERTURN, "quick"),
    Row(replace(EVERTURN, name="everturn_streamed"), "quick", stream=True),
    Row(replace(EVERTURN, name="everturn_streamed_http"), "quick", stream=True, live="http"),
    Row(replace(EVERTURN, name="everturn_thrifty"), "thrifty"),
    Row(replace(EVERTURN, name="everturn_thrifty_streamed"), "thrifty", stream=True),
    Row(replace(EVERTURN, name="everturn_thrifty_streamed_http"), "thrifty", stream=True, live="http"),
    Row(PYDANTIC_AI),
    Row(OPENAI_AGENTS),
)

NOTES = (
    f"A conversation of {TURNS} turns of {SECONDS:.0f} s, with one tool call each but the last, as the server's "
    "metric `action` counts it. **streamed**: with `stream=True`, and a client that follows its events; **http**: with "
    "EVERTURN_LIVE=http, on the worker and on that client. How many pieces of text reached it is in the last column. "
    "**thrifty**: with EVERTURN_HEARTBEATS=thrifty, as workers of Temporal Cloud have it by themselves.",
)


async def measure(_: Rig, plan: Plan) -> Measured:
    peers_too = any(contestant.python == peers.PYTHON for contestant in plan.contestants)
    rows = [row for row in ROWS if row.contestant.python != peers.PYTHON or peers_too]
    found = await asyncio.gather(*map(_count, rows))
    columns = [
        Column("actions", f"actions, {TURNS} turns of {SECONDS:.0f} s", ".0f"),
        Column("heartbeats", "of which heartbeats", ".0f"),
        Column("events", "history events", ".0f"),
        Column("kb", "history KB"),
        Column("seen", "pieces of text seen", ".0f", better=None),
    ]
    named = {row.contestant.name: one for row, one in zip(rows, found, strict=True)}
    return Measured(f"Actions of slow turns ({TURNS} of {SECONDS:.0f} s)", columns, named, notes=NOTES)


async def _count(row: Row) -> dict[str, float | None]:
    hosted = EVERTURN if row.heartbeats else row.contestant
    more = {"EVERTURN_HEARTBEATS": row.heartbeats} if row.heartbeats else {}
    more |= {"EVERTURN_LIVE": row.live} if row.live else {}
    async with rig(model_takes=SECONDS) as own, own.worker(hosted, warm=False, **more):
        before = await actions(own)
        handle = await _started(own, row)
        async with asyncio.timeout(LONGEST_SECONDS):
            seen = await _followed(own, row, handle.id) if row.stream else None
            check_result(handle, await handle.result())
        after = await actions(own)
        info = (await handle.describe()).raw_description.workflow_execution_info
    made = {kind: count - before.get(kind, 0.0) for kind, count in after.items()}
    return {
        "actions": sum(made.values()),
        "heartbeats": sum(count for kind, count in made.items() if "Heartbeat" in kind),
        "events": info.history_length,
        "kb": info.history_size_bytes / 1000,
        "seen": seen,
    }


async def _started(own: Rig, row: Row) -> Handle:
    said = work.opening(TURNS - 1)  # and the last reply, which is a turn, too
    if not row.heartbeats:
        return await own.start(row.contestant, turns=TURNS - 1)
    conversation = await everturn_client(own.client).start("clerk", said, stream=row.stream)
    return own.client.get_workflow_handle(conversation.id)


async def _followed(own: Rig, row: Row, conversation_id: str) -> int:
    """How many pieces of text a client saw, until the conversation was over. Nobody has to look for text to be sent
    over HTTP, but a quick worker that nobody comes to sends heartbeats."""
    if row.live:
        hear(own, EVERTURN, row.live)
    conversation = everturn_client(own.client, EVERTURN.name).conversation(conversation_id)
    return len([event async for event in conversation.events() if event.kind == "text_delta"])


async def actions(own: Rig) -> dict[str, float]:
    """All that the server has billed so far, by kind."""
    async with httpx.AsyncClient(timeout=LONGEST_SECONDS) as http:
        shown = (await http.get(own.metrics_url)).text
    found: dict[str, float] = {}
    for kind, count in _ACTIONS.findall(shown):
        found[kind] = found.get(kind, 0.0) + float(count)
    return found
