"""Agents that hand a long conversation on to each other: Temporal's sample `openai_agents/customer_service`.

python examples/temporal_samples/customer_service.py chat-7
"""

import asyncio
import os
import random
import sys
from collections.abc import Sequence
from datetime import timedelta

from everturn import Agent, Client, HandOff, Message, Shown, Worker, tool

MODEL = os.environ.get("MODEL", "openai:gpt-5.5")


@tool(effect="read")
def faq_lookup(question: str) -> str:
    """Look up frequently asked questions."""
    words = question.lower()
    if "bag" in words:
        return "One bag, under 50 pounds and 22 inches x 14 inches x 9 inches."
    if "seats" in words or "plane" in words:
        return "120 seats: 22 in business class, 98 in economy. Exit rows are 4 and 16, rows 5-8 have extra legroom."
    if "wifi" in words:
        return "Free wifi on the plane: join Airline-Wifi."
    return "I'm sorry, I don't know the answer to that question."


@tool
def update_seat(confirmation_number: str, new_seat: str, flight_number: str) -> str:
    """Update the seat of a booking. The flight number is the one that you were told."""
    return f"Updated seat to {new_seat} for confirmation number {confirmation_number} on {flight_number}"


def with_flight(_: Sequence[Message]) -> Shown:
    return Shown(note=f"The flight number is FLT-{random.randint(100, 999)}.")


faq = Agent(
    "faq",
    model=MODEL,
    description="Answers questions about the airline.",
    instructions="Answer the customer's last question with the faq lookup tool, and not from your own knowledge. "
    "If you can't, hand back to triage.",
    tools=[faq_lookup],
    handoff_to=["triage"],
)
seat_booking = Agent(
    "seat_booking",
    model=MODEL,
    description="Updates a seat on a flight.",
    instructions="Ask for the confirmation number, then for the desired seat, then update it. "
    "Hand any other question back to triage.",
    tools=[update_seat],
    handoff_to=["triage"],
)
triage = Agent(
    "triage",
    model=MODEL,
    instructions="Hand the customer's request on to the agent that is best for it.",
    handoff_to=[faq, HandOff(seat_booking, filter=with_flight)],
)


async def main(conversation_id: str) -> None:
    client = await Client.connect()
    printed = 0
    async with Worker(client, agents=[triage]):
        while text := await asyncio.to_thread(input, "Enter your message: "):
            conversation = await client.send(triage, text, id=conversation_id, keep_open=timedelta(days=30))
            await conversation.reply()
            transcript = await conversation.transcript()
            for message in transcript[printed:]:  # the first time, all that was said before
                if message.text:
                    print(f"{message.author or message.role}: {message.text}")
                for result in message.tool_results:
                    print(f"{result.name}: {result.text}")
            printed = len(transcript)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
