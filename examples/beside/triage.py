"""Agents that a conversation is handed on to: each as a tool of the first one, with what it is shown."""

import asyncio
import os

from everturn import Agent, Client, HandOff, Shown, Worker

MODEL = os.environ.get("MODEL", "openai:gpt-5.5")

booking = Agent("booking", model=MODEL, instructions="You book.", description="Bookings.")
refunds = Agent("refunds", model=MODEL, instructions="You refund.", description="Refunds.")
triage = Agent(
    "triage",
    model=MODEL,
    instructions="Help the user with their questions. Hand booking and refunds on.",
    handoff_to=[booking, HandOff(refunds, name="escalate_refund", filter=Shown(tools=False))],
)


async def main() -> None:
    client = await Client.connect()
    async with Worker(client, agents=[triage]):
        conversation = await client.start(triage, "I want my money back.")
        async for event in conversation.events(deltas=False):
            if event.kind == "handed_off":
                print(f"{event.by} handed it on to {event.agent}")
            elif event.kind == "replied" and event.final:
                print(event.message.text)


if __name__ == "__main__":
    asyncio.run(main())
