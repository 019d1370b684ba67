"""everturn, with a tool whose calls wait for an approval."""

from __future__ import annotations

import os

from benchmarks import work
from everturn import Agent, tool
from everturn.settings import Settings
from everturn.worker.process import serve as serve_agents


@tool(effect="once", needs_approval=True)
async def lookup(number: int) -> str:
    """Look up a number."""
    return work.looked_up(number)


clerk = Agent("clerk", model="scripted:demo", tools=[lookup])


async def serve(address: str) -> None:
    os.environ["TEMPORAL_ADDRESS"] = address
    await serve_agents(Settings(agents=f"{__name__}:clerk", task_queue="everturn_waiting"))
