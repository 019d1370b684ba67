"""An MCP tool that asks a person in the middle of its call: the conversation waits, with no connection open."""

import asyncio
import os
import sys
from pathlib import Path

from everturn import Agent, Client, McpServer, McpTool, Worker

SERVER = Path(__file__).with_name("mcp_server.py")

restaurant = Agent(
    "restaurant",
    model=os.environ.get("MODEL", "openai:gpt-5.5"),
    tools=[
        McpServer(
            command=[sys.executable, str(SERVER)],
            protocol="legacy",
            overrides={"book_table": McpTool(effect="idempotent")},
        )
    ],
)


async def main() -> None:
    client = await Client.connect()
    async with Worker(client, agents=[restaurant]):
        conversation = await client.start(restaurant, "Book me a table")
        async for event in conversation.events(deltas=False):
            if event.kind == "answer_requested":
                print(event.why)
                await conversation.answer(event.call_id, {"restaurant": "Nonna", "party_size": 2, "date": "24-12-2026"})
            elif event.kind == "tool_finished":
                print(event.result.text)


if __name__ == "__main__":
    asyncio.run(main())
