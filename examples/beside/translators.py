"""Agents that are the tools of another one."""

import asyncio
import os

from everturn import Agent, Client, Worker

MODEL = os.environ.get("MODEL", "openai:gpt-5.5")

spanish = Agent(
    "translate_to_spanish",
    model=MODEL,
    instructions="You translate the user's message to Spanish",
    description="Translate the user's message to Spanish",
)
french = Agent(
    "translate_to_french",
    model=MODEL,
    instructions="You translate the user's message to French",
    description="Translate the user's message to French",
)
orchestrator = Agent(
    "orchestrator",
    model=MODEL,
    instructions="You are a translation agent. Use the tools given to you to translate.",
    tools=[spanish, french],
)


async def main() -> None:
    client = await Client.connect()
    async with Worker(client, agents=[orchestrator]):
        outcome = await client.run(orchestrator, "Say 'Hello, how are you?' in Spanish.")
        print(outcome.text)
        print(outcome.usage.input_tokens, "tokens in, those of the other agents included")


if __name__ == "__main__":
    asyncio.run(main())
