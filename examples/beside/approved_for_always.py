"""What is decided in advance, for calls of a conversation to come."""

import asyncio
import os
from datetime import timedelta

from everturn import Agent, Client, Worker, tool


@tool(needs_approval=True)
def delete_file(path: str) -> str:
    """Delete a file."""
    return f"File {path!r} deleted"


files = Agent("files", model=os.environ.get("MODEL", "openai:gpt-5.5"), tools=[delete_file])


async def main() -> None:
    client = await Client.connect()
    async with Worker(client, agents=[files]):
        conversation = await client.start(files, "", keep_open=timedelta(minutes=1))
        await conversation.set_policy(
            [
                {"tool": "delete_file", "where": {"path": {"starts_with": "/tmp/"}}, "then": "approve"},
                {"tool": "*", "then": "deny", "where": {"path": {"starts_with": "/etc/"}}, "reason": "not there"},
            ]
        )
        await conversation.send("Delete /tmp/a and /etc/passwd")
        print(await conversation.reply())
        results = [part for message in await conversation.transcript() for part in message.parts]
        print([part.text for part in results if part.kind == "tool_result"])
        await conversation.close()


if __name__ == "__main__":
    asyncio.run(main())
