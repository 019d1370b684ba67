"""What a conversation is labelled with, and found by."""

import asyncio
import os

from everturn import Agent, Client, Worker

assistant = Agent("assistant", model=os.environ.get("MODEL", "openai:gpt-5.5"))


async def main() -> None:
    client = await Client.connect()
    async with Worker(client, agents=[assistant]):
        outcome = await client.run(
            assistant, "What is the capital of France?", tenant="tenant-123", metadata={"source": "web"}
        )
        print(outcome.text, outcome.turns)


if __name__ == "__main__":
    asyncio.run(main())
