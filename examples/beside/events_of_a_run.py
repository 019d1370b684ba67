"""What happens in a conversation, as it happens."""

import asyncio
import os

from everturn import Agent, Client, Worker, tool


@tool
def how_many_jokes() -> int:
    """How many jokes to tell."""
    return 3


joker = Agent(
    "joker",
    model=os.environ.get("MODEL", "openai:gpt-5.5"),
    instructions="First call the `how_many_jokes` tool, then tell that many jokes.",
    tools=[how_many_jokes],
)


async def main() -> None:
    client = await Client.connect()
    async with Worker(client, agents=[joker]):
        conversation = await client.start(joker, "Hello")
        async for event in conversation.events(deltas=False):
            match event.kind:
                case "tool_called":
                    print("-- Tool was called:", event.tool)
                case "tool_finished":
                    print("-- Tool output:", event.result.text)
                case "replied" if event.final:
                    print("-- Message output:", event.message.text)


if __name__ == "__main__":
    asyncio.run(main())
