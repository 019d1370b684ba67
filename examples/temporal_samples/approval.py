"""A tool that waits for a person: Temporal's samples `human_in_the_loop` for Deep Agents and for LangGraph.

python examples/temporal_samples/approval.py Lisbon
"""

import asyncio
import os
import sys

from everturn import Agent, Client, Worker, tool


@tool(needs_approval=True, effect="once")
def book_trip(city: str) -> str:
    """Book a trip to a city."""
    return f"Booked a trip to {city}."


agent = Agent("travel", model=os.environ.get("MODEL", "openai:gpt-5.5"), tools=[book_trip])


async def main(city: str) -> None:
    client = await Client.connect(by="the traveller")
    async with Worker(client, agents=[agent]):
        conversation = await client.start(agent, f"Book a trip to {city}.")
        async for event in conversation.events():
            if event.kind == "approval_requested":  # it may as well wait for days, and be decided anywhere
                print(f"Approve {event.tool}({event.arguments})?")
                await conversation.approve(event.call_id)
        print((await conversation.outcome()).text)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
