"""A tool that the model has to call, and whose result is the answer: the model is not asked again."""

import asyncio
import os

from everturn import Agent, Client, ModelSettings, ToolCall, ToolContext, ToolResult, Worker, tool
from everturn.hooks import StopWith, after_tool


@tool(effect="read")
def get_weather(city: str) -> str:
    """Returns weather info for the specified city."""
    return f"The weather in {city} is sunny"


@after_tool(tools=["get_weather"])
def final(call: ToolCall, result: ToolResult, context: ToolContext) -> StopWith | None:
    return StopWith(f"Final weather: {result.text}") if "sunny" in result.text else None


weather = Agent(
    "weather",
    model=os.environ.get("MODEL", "openai:gpt-5.5"),
    tools=[get_weather],
    settings=ModelSettings(tool_choice="get_weather"),
    hooks=[final],
)


async def main() -> None:
    client = await Client.connect()
    async with Worker(client, agents=[weather]):
        print((await client.run(weather, "The weather in Paris?")).text)


if __name__ == "__main__":
    asyncio.run(main())
