"""A guardrail in front of an agent: a model judges what people say."""

import asyncio
import os

from everturn import Agent, Client, Worker
from everturn.guardrails import Judge

MODEL = os.environ.get("MODEL", "openai:gpt-5.5")

support = Agent(
    "support",
    model=MODEL,
    instructions="You are a customer support agent. You help customers with their questions.",
    hooks=[Judge(MODEL, "The user does not ask to have math homework done.", refuse="I don't do math homework.")],
)


async def main() -> None:
    client = await Client.connect()
    async with Worker(client, agents=[support]):
        print((await client.run(support, "Hello, can you help me solve for x: 2x + 3 = 11?")).text)


if __name__ == "__main__":
    asyncio.run(main())
