"""What the server of an MCP tool is told beside the model's arguments."""

import asyncio
import os
import sys
from pathlib import Path

from everturn import Agent, Client, McpServer, ToolContext, Worker

SERVER = Path(__file__).with_name("mcp_server.py")


def meta(context: ToolContext) -> dict[str, str]:
    return {"tenant_id": context.tenant or "", "source": "everturn"}


assistant = Agent(
    "assistant",
    model=os.environ.get("MODEL", "openai:gpt-5.5"),
    tools=[McpServer(command=[sys.executable, str(SERVER)], meta=meta)],
)


async def main() -> None:
    client = await Client.connect()
    async with Worker(client, agents=[assistant]):
        conversation = await client.start(assistant, "Echo who I am", tenant="acme")
        await conversation.outcome()
        parts = [part for message in await conversation.transcript() for part in message.parts]
        print([part.text for part in parts if part.kind == "tool_result"])


if __name__ == "__main__":
    asyncio.run(main())
