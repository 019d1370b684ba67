"""A worker of the measure of limits: `python -m benchmarks.limited_worker ADDRESS SLOTS`. Ends with its parent."""

from __future__ import annotations

import asyncio
import os
import sys
import threading

from everturn import Agent, Client, Worker, tool
from everturn.logs import configure


@tool(effect="read")
async def look_up(number: int) -> str:
    """Look up a number."""
    return f"{number}."


agent = Agent("limited", model="scripted:limited", tools=[look_up])


async def serve(address: str, slots: int) -> None:
    configure()
    client = await Client.connect(address, task_queue="limited")
    await Worker(client, agents=[agent], max_concurrent_activities=slots).run()


def _end_with_parent() -> None:
    os.read(0, 1)
    os._exit(0)


if __name__ == "__main__":
    threading.Thread(target=_end_with_parent, daemon=True).start()
    asyncio.run(serve(sys.argv[1], int(sys.argv[2])))
