"""A call that a person has to approve, depending on its arguments; asked and answered by any process."""

import asyncio
import os
from typing import Any

from everturn import Agent, Client, Worker, tool


def is_oakland(arguments: dict[str, Any]) -> bool:
    return "Oakland" in arguments["city"]


@tool(effect="read", needs_approval=is_oakland)
def get_temperature(city: str) -> str:
    """The temperature in a city."""
    return f"The temperature in {city} is 20 degrees Celsius"


weather = Agent("weather", model=os.environ.get("MODEL", "openai:gpt-5.5"), tools=[get_temperature])


async def main() -> None:
    client = await Client.connect()
    async with Worker(client, agents=[weather]):
        conversation = await client.start(weather, "What is the temperature in Oakland?")
        async for event in conversation.events(deltas=False):
            if event.kind == "approval_requested":
                print(f"Approve {event.tool} with {event.arguments}?")
                await conversation.approve(event.call_id)
        print((await conversation.outcome()).text)


if __name__ == "__main__":
    asyncio.run(main())
