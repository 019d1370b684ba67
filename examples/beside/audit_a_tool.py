"""A hook for one tool, and for none of the others."""

import asyncio
import os

from everturn import Agent, Client, ToolCall, ToolContext, Worker, tool
from everturn.hooks import before_tool

call_log: list[str] = []


@before_tool(tools=["send_email"])
def audit(call: ToolCall, context: ToolContext) -> None:
    call_log.append(f"audit: {call.name}")


@tool
def send_email(to: str) -> str:
    """Send an email."""
    return f"sent to {to}"


mailer = Agent("mailer", model=os.environ.get("MODEL", "openai:gpt-5.5"), tools=[send_email], hooks=[audit])


async def main() -> None:
    client = await Client.connect()
    async with Worker(client, agents=[mailer]):
        await client.run(mailer, "Send an email to test@example.com")
        print(call_log)


if __name__ == "__main__":
    asyncio.run(main())
