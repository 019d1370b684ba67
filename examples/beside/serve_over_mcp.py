"""An agent as the tool of an MCP server, and a client of it: `everturn mcp` is the server."""

import asyncio
import os
import sys

from mcp import Client as McpClient
from mcp.client.stdio import StdioServerParameters, stdio_client

from everturn import Agent, Client, Worker

poet = Agent(
    "poet",
    model=os.environ.get("MODEL", "openai:gpt-5.5"),
    instructions="Always reply in rhyme.",
    description="Writes poems",
)


async def main() -> None:
    command = ["-m", "everturn", "mcp", "--agents", __file__]
    server = StdioServerParameters(command=sys.executable, args=command, env=dict(os.environ))
    async with Worker(await Client.connect(), agents=[poet]), McpClient(stdio_client(server)) as client:
        result = await client.call_tool("poet", {"message": "socks"})
        print(*(block.text for block in result.content if block.type == "text"))


if __name__ == "__main__":
    asyncio.run(main())
