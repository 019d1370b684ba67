"""An answer of one of several types: a box, or words if something is missing."""

import asyncio
import os

from pydantic import BaseModel

from everturn import Agent, Client, Worker


class Box(BaseModel):
    width: int
    height: int
    depth: int
    units: str


boxes = Agent(
    "boxes",
    model=os.environ.get("MODEL", "openai:gpt-5.5"),
    output=Box | str,
    instructions="Extract the dimensions of a box. If you can't extract all data, ask the user to try again.",
)


async def main() -> None:
    client = await Client.connect()
    async with Worker(client, agents=[boxes]):
        for message in ("The box is 10x20x30", "The box is 10x20x30 cm"):
            outcome = await client.run(boxes, message)
            print(repr(outcome.value))


if __name__ == "__main__":
    asyncio.run(main())
