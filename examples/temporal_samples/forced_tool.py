"""A tool that has to be called, and whose result is the answer: Temporal's sample `openai_agents/agent_patterns`,
forcing tool use. With "default" as the second argument, the model answers.

python examples/temporal_samples/forced_tool.py "What is the weather in Tokyo?"
"""

import asyncio
import os
import sys

from everturn import Agent, Client, ModelSettings, ToolCall, ToolContext, ToolResult, Worker, tool
from everturn.hooks import StopWith, after_tool


@tool(effect="read")
def get_weather(city: str) -> str:
    """Get the weather for a given city."""
    return f"{city} is sunny with wind, 14-20C."


@after_tool(tools=["get_weather"])
def answers(_call: ToolCall, result: ToolResult, _context: ToolContext) -> StopWith:
    return StopWith(result.text)


MODEL = os.environ.get("MODEL", "openai:gpt-5.5")
default = Agent("weather", model=MODEL, tools=[get_weather])
forced = Agent(
    "weather-forced",
    model=MODEL,
    tools=[get_weather],
    settings=ModelSettings(tool_choice="required"),
    hooks=[answers],
)


async def main(question: str, behavior: str = "first_tool") -> None:
    client = await Client.connect()
    async with Worker(client, agents=[default, forced]):
        print((await client.run(default if behavior == "default" else forced, question)).text)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
