"""everturn, hosted as the worker process hosts it."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta

from benchmarks import work
from everturn import Agent, Limits, tool
from everturn.settings import Settings
from everturn.worker.process import serve as serve_agents

TAKES = float(os.environ.get("TOOL_TAKES", "0"))
"""Seconds of a call."""


@tool(effect="read", timeout=timedelta(hours=1) if TAKES else None)
async def lookup(number: int) -> str:
    """Look up a number."""
    if TAKES:
        await asyncio.sleep(TAKES)
    return work.looked_up(number)


clerk = Agent("clerk", model="scripted:demo", tools=[lookup], limits=Limits(max_turns=10_000))


async def serve(address: str) -> None:
    os.environ["TEMPORAL_ADDRESS"] = address
    await serve_agents(Settings(agents=f"{__name__}:clerk", task_queue="everturn"))
