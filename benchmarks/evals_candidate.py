"""The agents of `benchmarks.evals`, and the process that reruns: `python -m benchmarks.evals_candidate ADDRESS NAME
NUMBER`.

Prints what it found, as JSON. Each tool writes a line into EVALS_RAN when it runs.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
from collections import Counter
from pathlib import Path

from everturn import Agent, Client, Model, tool
from everturn.evals import rerun


def conversation_id(number: int) -> str:
    return f"order-{number}"


def make_agent(model: str, base_url: str, ran: Path) -> Agent:
    def write(text: str) -> None:
        with ran.open("a") as file:
            file.write(text + "\n")

    @tool(effect="read")
    async def look_up(order: str, item: int) -> str:
        """Look up an item of an order."""
        write("look_up")
        return f"item {item} of order {order}: 12.50 EUR"

    @tool(effect="once")
    async def pay(order: str) -> str:
        """Pay an order."""
        write("pay")
        return f"order {order} is paid"

    return Agent("clerk", model=Model(f"scripted:{model}", base_url=base_url), tools=[look_up, pay])


async def main(address: str, candidate: str, conversations: int) -> None:
    client = await Client.connect(address, task_queue="evals")
    agent = make_agent(candidate, os.environ["SCRIPTED_BASE_URL"], Path(os.environ["EVALS_RAN"]))
    ids = [conversation_id(number) for number in range(conversations)]
    reruns = await rerun(client, ids, agent=agent, parallel=32)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    verdicts = Counter(comparison.verdict for comparison in reruns.comparisons)
    told = {
        "reruns": len(reruns.comparisons),
        "verdicts": ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items()),
        "pays_twice": sum(
            comparison.diverged is not None and comparison.diverged.made.name == "pay"
            for comparison in reruns.comparisons
        ),
        "skips": sum(
            [call.call.name for call in comparison.missing] == ["look_up"] for comparison in reruns.comparisons
        ),
        # Where a rerun ends as diverged, the hook has the last word, and no model.
        "replies": sum(comparison.rerun.turns - bool(comparison.diverged) for comparison in reruns.comparisons),
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
    }
    print(json.dumps(told))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
