"""A tool that knows which call it serves, and returns what a class describes."""

import asyncio
import os
from typing import Annotated

from pydantic import BaseModel, Field

from everturn import Agent, Client, ToolContext, Worker, tool


class Weather(BaseModel):
    city: str
    temperature_range: str
    conditions: str


@tool(effect="read")
def get_weather(
    city: Annotated[str, Field(description="The city to get the weather for")], context: ToolContext
) -> Weather:
    """The weather in a city."""
    print(f"call {context.call_id} of {context.conversation_id}, try {context.attempt}: city={city}")
    return Weather(city=city, temperature_range="14-20C", conditions="Sunny with wind.")


weather = Agent("weather", model=os.environ.get("MODEL", "openai:gpt-5.5"), tools=[get_weather])


async def main() -> None:
    client = await Client.connect()
    async with Worker(client, agents=[weather]):
        print((await client.run(weather, "The weather in Paris?")).text)


if __name__ == "__main__":
    asyncio.run(main())
