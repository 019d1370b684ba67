"""A booking that the model asks for, question by question, until it has all that it needs."""

import asyncio
import datetime
import os

from pydantic import BaseModel, Field

from everturn import Agent, Client, Worker, ask_user, tool


@tool(effect="read")
def free_tables(day: datetime.date, people: int) -> list[str]:
    """The times at which a table is free."""
    return ["18:00", "20:30"] if people <= 6 else []


class Booking(BaseModel):
    day: datetime.date
    time: str = Field(description="Such as 20:30.")
    people: int
    name: str


host = Agent(
    "host",
    model=os.environ.get("MODEL", "openai:gpt-5.5"),
    instructions=lambda turn: f"You take bookings. Today is {turn.now:%A, %d %B %Y}. Ask for what you don't know.",
    tools=[ask_user, free_tables],
    output=Booking,
)


async def main() -> None:
    client = await Client.connect()
    async with Worker(client, agents=[host]):
        conversation = await client.start(host, "A table for four on 24 December 2026, please.")
        async for event in conversation.events(deltas=False):
            if event.kind == "answer_requested":
                answer = await asyncio.to_thread(input, f"{event.why} ")
                await conversation.answer(event.call_id, answer)
        booking = await conversation.reply()
        print(f"{booking.name}: {booking.people} people, {booking.day:%d.%m.%Y}, {booking.time}")


if __name__ == "__main__":
    asyncio.run(main())
