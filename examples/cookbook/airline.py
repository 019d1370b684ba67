"""An airline's hotline: a first agent finds out what it is about, and hands the conversation on to a specialist."""

import asyncio
import os
from datetime import timedelta

from everturn import Agent, Client, ToolContext, Worker, tool

MODEL = os.environ.get("MODEL", "openai:gpt-5.5")


@tool(effect="idempotent")
def change_seat(seat: str, context: ToolContext) -> str:
    """Give the passenger another seat."""
    return f"Seat {seat} on flight {context.metadata['flight']} is theirs."


@tool(effect="read")
def find_bag(tag: str) -> str:
    """Where a bag is."""
    return f"Bag {tag} is in Lisbon, and comes with the flight of tomorrow."


seats = Agent(
    "seats",
    model=MODEL,
    instructions="You change seats. Hand anything else back.",
    description="Seats and check-in.",
    tools=[change_seat],
    handoff_to=["hotline"],
)
bags = Agent(
    "bags",
    model=MODEL,
    instructions="You find bags. Hand anything else back.",
    description="Bags that are late or lost.",
    tools=[find_bag],
    handoff_to=["hotline"],
)
hotline = Agent(
    "hotline",
    model=MODEL,
    instructions="Find out what it is about, and hand it on.",
    handoff_to=[seats, bags],
)

SAID = ["I want a window seat: 12A.", "And my bag, tag 4711, did not come."]


async def main() -> None:
    client = await Client.connect()
    async with Worker(client, agents=[hotline]):  # hosts the others, too
        conversation = await client.start(
            hotline, SAID[0], metadata={"flight": "TP 571"}, keep_open=timedelta(minutes=10)
        )
        print(">", SAID[0])
        print(await conversation.reply())
        print(">", SAID[1])
        await conversation.send(SAID[1])  # the agent in charge answers: seats, until it hands it back
        print(await conversation.reply())
        await conversation.close()
        await conversation.outcome()
        async for event in conversation.events(deltas=False):
            if event.kind == "handed_off":
                print(f"({event.by} handed it on to {event.agent})")


if __name__ == "__main__":
    asyncio.run(main())
