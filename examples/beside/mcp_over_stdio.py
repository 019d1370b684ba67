"""Tools of an MCP server that the worker starts: some of them, under a prefix."""

import asyncio
import os
import sys
from pathlib import Path

from everturn import Agent, Client, McpServer, Worker

SERVER = Path(__file__).with_name("mcp_server.py")

calculator = Agent(
    "calculator",
    model=os.environ.get("MODEL", "openai:gpt-5.5"),
    tools=[McpServer(command=[sys.executable, str(SERVER)], prefix="calc", allow=["add"])],
)


async def main() -> None:
    client = await Client.connect()
    async with Worker(client, agents=[calculator]):
        print((await client.run(calculator, "What is 7 plus 5?")).text)


if __name__ == "__main__":
    asyncio.run(main())
