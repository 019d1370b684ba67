"""Tools of an MCP server over HTTP, with a token that stays on the worker, and one tool that people approve."""

import asyncio
import os
from datetime import timedelta

from everturn import Agent, Client, McpServer, McpTool, ModelSettings, Worker

server = McpServer(
    url=os.environ.get("MCP_URL", "http://localhost:8000/mcp"),
    headers_env={"Authorization": "Bearer $MCP_SERVER_TOKEN"},
    timeout=timedelta(seconds=10),
    overrides={"add": McpTool(needs_approval=True)},
)
assistant = Agent(
    "assistant",
    model=os.environ.get("MODEL", "openai:gpt-5.5"),
    instructions="Use the MCP tools to answer the questions.",
    tools=[server],
    settings=ModelSettings(tool_choice="required"),
)


async def main() -> None:
    client = await Client.connect()
    async with Worker(client, agents=[assistant]):
        conversation = await client.start(assistant, "Add 7 and 22.")
        async for event in conversation.events(deltas=False):
            if event.kind == "approval_requested":
                await conversation.approve(event.call_id)
        print((await conversation.outcome()).text)


if __name__ == "__main__":
    asyncio.run(main())
