"""Tools of an MCP server that an agent has in some turns only."""

import asyncio
import os
import sys
from pathlib import Path

from everturn import Agent, Client, McpServer, Tool, TurnContext, Worker

SERVER = Path(__file__).with_name("mcp_server.py")


def safe(context: TurnContext, tools: list[Tool]) -> list[Tool]:
    return [tool for tool in tools if context.metadata.get("trusted") or not tool.name.startswith("danger_")]


reviewer = Agent(
    "reviewer",
    model=os.environ.get("MODEL", "openai:gpt-5.5"),
    tools=[McpServer(command=[sys.executable, str(SERVER)])],
    prepare_tools=safe,
)


async def main() -> None:
    client = await Client.connect()
    async with Worker(client, agents=[reviewer]):
        conversation = await client.start(reviewer, "Hello")
        await conversation.outcome()
        print(sorted(tool.name for tool in (await conversation.prompt(turn=1)).tools))


if __name__ == "__main__":
    asyncio.run(main())
