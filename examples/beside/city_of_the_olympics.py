"""An answer of a type."""

import asyncio
import os

from pydantic import BaseModel

from everturn import Agent, Client, Worker


class CityLocation(BaseModel):
    city: str
    country: str


places = Agent("places", model=os.environ.get("MODEL", "openai:gpt-5.5"), output=CityLocation)


async def main() -> None:
    client = await Client.connect()
    async with Worker(client, agents=[places]):
        outcome = await client.run(places, "Where were the olympics held in 2012?")
        print(repr(outcome.value), outcome.usage.output_tokens)


if __name__ == "__main__":
    asyncio.run(main())
