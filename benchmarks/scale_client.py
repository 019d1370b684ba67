"""Clients in a process of their own: `python -m benchmarks.scale_client ADDRESS SECONDS AT_ONCE TURNS NAME`.

Holds so many conversations at a time for so long, one after the other, and prints as JSON when each began and ended.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from itertools import count

from temporalio.client import Client

from benchmarks import work
from benchmarks.contestants import everturn_client


async def main(address: str, seconds: float, at_once: int, turns: int, name: str) -> None:
    temporal = await Client.connect(address)
    client = everturn_client(temporal)
    numbers, end = count(), time.time() + seconds
    held: list[tuple[str, float, float]] = []

    async def hold() -> None:
        while (began := time.time()) < end:
            conversation_id = f"{name}-{next(numbers)}"
            outcome = await client.run("clerk", work.opening(turns, unlike=conversation_id), id=conversation_id)
            if outcome.text != work.LAST_WORDS:
                raise RuntimeError(f"{conversation_id} ended with {outcome!r:.300}")
            held.append((conversation_id, began, time.time()))

    await asyncio.gather(*(hold() for _ in range(at_once)))
    json.dump(held, sys.stdout)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]))
