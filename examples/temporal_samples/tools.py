"""An activity that there is already, as a tool: Temporal's sample `openai_agents/basic`, its tools workflow.

python examples/temporal_samples/tools.py "What is the weather in Tokyo?"
"""

import asyncio
import os
import sys
from dataclasses import dataclass

from temporalio import activity

from everturn import Agent, Client, Worker, activity_tool


@dataclass
class Weather:
    city: str
    temperature_range: str
    conditions: str


@activity.defn
async def get_weather(city: str) -> Weather:
    """Get the weather for a given city."""
    return Weather(city, temperature_range="14-20C", conditions="Sunny with wind.")


agent = Agent(
    "hello-world",
    model=os.environ.get("MODEL", "openai:gpt-5.5"),
    instructions="You are a helpful agent.",
    tools=[activity_tool(get_weather, effect="read")],
)


async def main(question: str) -> None:
    client = await Client.connect()
    async with Worker(client, agents=[agent]):
        print((await client.run(agent, question)).text)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
