"""One agent after the other, with a program that decides between them."""

import asyncio
import os
from typing import Literal, TypeVar

from pydantic import BaseModel, Field

from everturn import Agent, Client, Limits, Worker, tool

T = TypeVar("T")

MODEL = os.environ.get("MODEL", "openai:gpt-5.5")


class FlightDetails(BaseModel):
    flight_number: str


class SeatPreference(BaseModel):
    row: int = Field(ge=1, le=30)
    seat: Literal["A", "B", "C", "D", "E", "F"]


class Failed(BaseModel):
    """Unable to find a satisfactory choice."""

    reason: str


@tool(effect="read")
def flight_search(origin: str, destination: str) -> FlightDetails:
    """Find a flight."""
    return FlightDetails(flight_number="AK456")


flights = Agent(
    "flight_search_agent",
    model=MODEL,
    instructions='Use the "flight_search" tool to find a flight.',
    tools=[flight_search],
    output=FlightDetails | Failed,
    limits=Limits(max_turns=15),
)
seats = Agent(
    "seat_preference_agent",
    model=MODEL,
    instructions="Extract the user's seat preference. Seats A and F are window seats.",
    output=SeatPreference | Failed,
)


async def found(client: Client, agent: Agent[T], answers: list[str], id: str) -> T | Failed | None:  # noqa: A002
    """Asks with each answer of the user's, in one conversation, until something is found."""
    for answer in answers:
        conversation = await client.send(agent, answer, id=id)
        outcome = await conversation.outcome()
        if not isinstance(outcome.value, Failed):
            return outcome.value
    return None


async def main() -> None:
    client = await Client.connect()
    async with Worker(client, agents=[flights, seats]):
        flight = await found(client, flights, ["From somewhere", "From Berlin to Lisbon"], id="trip-7-flight")
        seat = await found(client, seats, ["In row 1, at the window"], id="trip-7-seat")
        print(flight, "-", seat)


if __name__ == "__main__":
    asyncio.run(main())
