"""The smallest agent: one tool, one question.

everturn up                      # in another terminal: Temporal with its Web UI
OPENAI_API_KEY=... python examples/hello.py

Without a key: examples/hello_model.py.
"""

import asyncio
import os

from everturn import Agent, Client, Worker, tool


@tool
def get_weather(city: str) -> str:
    """The weather in a city."""
    return f"21 degrees and sunny in {city}"


agent = Agent(
    "weather",
    model=os.environ.get("MODEL", "openai:gpt-5.5"),
    instructions="Answer in one sentence.",
    tools=[get_weather],
)


async def main() -> None:
    client = await Client.connect()
    async with Worker(client, agents=[agent]):
        outcome = await client.run(agent, "What is the weather in Paris?", id="weather-in-paris")
        print(outcome.text)


if __name__ == "__main__":
    asyncio.run(main())
