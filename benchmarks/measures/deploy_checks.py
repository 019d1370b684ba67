"""How many conversations a second are looked through before a deploy: `everturn replay --query` and `everturn doctor
--against`, as commands of their own."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from datetime import timedelta
from typing import Any
from uuid import uuid4

from benchmarks import work
from benchmarks.contestants import EVERTURN, everturn_client
from benchmarks.measures import Column, Measured, Plan
from benchmarks.rig import ROOT, Rig, rig

TURNS = 10
AT_ONCE = 25
LONGEST_SECONDS = 400.0
AGENT = "benchmarks.contestants.everturn:clerk"


async def measure(_: Rig, plan: Plan) -> Measured:
    async with rig() as own:
        async with own.worker(EVERTURN, warm=False):
            await _open_conversations(own, plan.conversations)
        start = await _took(own, "--version")
        replay, replayed = await _took(own, "replay", "--query", "WorkflowType = 'Conversation'", "--json")
        doctor = (await _took(own, "doctor", "--against", AGENT, "--json"))[0]
    if (found := json.loads(replayed)["ok"]) != plan.conversations:
        raise RuntimeError(f"{found} of {plan.conversations} conversations replay.")
    rows = {
        name: {"seconds": seconds, "rate": plan.conversations / seconds, "conversations": plan.conversations}
        for name, seconds in (("replay --query", replay), ("doctor --against", doctor))
    }
    columns = [
        Column("conversations", "conversations", ".0f", better=None),
        Column("seconds", "seconds"),
        Column("rate", "conversations a second", better="high"),
    ]
    notes = [
        f"Open conversations of {TURNS} turns with a call each. All of the command counts; `everturn --version` takes "
        f"{start[0]:.1f} s of it."
    ]
    return Measured("Before a deploy: conversations looked through", columns, rows, notes=notes)


async def _open_conversations(own: Rig, count: int) -> None:
    """So many that wait for their next message."""
    client, room = everturn_client(own.client), asyncio.Semaphore(AT_ONCE)

    async def one() -> None:
        async with room:
            said = work.opening(TURNS, unlike=uuid4().hex)
            conversation = await client.start("clerk", said, keep_open=timedelta(days=1))
            await conversation.reply()

    async with asyncio.timeout(LONGEST_SECONDS):
        await asyncio.gather(*(one() for _ in range(count)))


async def _took(own: Rig, *arguments: str) -> tuple[float, str]:
    """The seconds that the command took, and what it printed."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("TEMPORAL_", "EVERTURN_"))}
    there: dict[str, Any] = {"cwd": ROOT, "capture_output": True, "text": True, "timeout": LONGEST_SECONDS}
    there["env"] = {**clean, "TEMPORAL_ADDRESS": own.client.service_client.config.target_host}
    began = time.perf_counter()
    command = [sys.executable, "-m", "everturn", *arguments]
    done = await asyncio.to_thread(lambda: subprocess.run(command, check=False, **there))
    seconds = time.perf_counter() - began
    if not done.stdout:
        raise RuntimeError(f"`everturn {' '.join(arguments)}` said: {done.stderr[-500:]}")
    return seconds, done.stdout
