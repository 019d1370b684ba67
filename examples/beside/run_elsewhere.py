"""A tool that runs where the program is, and not on the worker."""

import asyncio
import os

from everturn import Agent, Client, Worker, tool


@tool(runs_on="client")
def get_preferred_language(country: str) -> str:
    """What they speak there."""
    return {"Mexico": "Spanish"}.get(country, "English")


greeter = Agent("greeter", model=os.environ.get("MODEL", "openai:gpt-5.5"), tools=[get_preferred_language])


async def main() -> None:
    client = await Client.connect()
    async with Worker(client, agents=[greeter]):
        conversation = await client.start(greeter, "Greet somebody from Mexico")
        print(await conversation.run_tools([get_preferred_language]))


if __name__ == "__main__":
    asyncio.run(main())
