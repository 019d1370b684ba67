"""A hook that takes too long: the conversation stalls, and says so."""

import asyncio
import os
from datetime import timedelta

from everturn import Agent, Client, Worker
from everturn.errors import Stalled
from everturn.hooks import before_model


@before_model(timeout=timedelta(milliseconds=10))
async def slow_hook(given: object, context: object) -> None:
    await asyncio.sleep(10)


assistant = Agent("assistant", model=os.environ.get("MODEL", "openai:gpt-5.5"), hooks=[slow_hook])


async def main() -> None:
    client = await Client.connect()
    async with Worker(client, agents=[assistant]):
        try:
            await client.run(assistant, "Hello")
        except Stalled as stall:
            print(stall)


if __name__ == "__main__":
    asyncio.run(main())
