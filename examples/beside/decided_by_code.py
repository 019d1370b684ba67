"""Calls that code decides on in people's place, and one that something else than a worker answers."""

import asyncio
import os

from everturn import Agent, Client, NeedsApproval, ToolContext, Worker, tool

MODEL = os.environ.get("MODEL", "openai:gpt-5.5")


@tool(needs_approval=True)
def delete_file(path: str) -> str:
    """Delete a file."""
    return f"File {path!r} deleted"


@tool
def update_file(path: str, content: str, context: ToolContext) -> str:
    """Write a file."""
    if path == ".env" and not context.approved:
        raise NeedsApproval(".env is protected")
    return f"File {path!r} updated: {content!r}"


SEND = {
    "name": "send_to_worker",
    "description": "Have it done elsewhere.",
    "parameters": {"type": "object", "properties": {"task": {"type": "string"}}, "required": ["task"]},
}

files = Agent("files", model=MODEL, tools=[delete_file, update_file, SEND])


async def main() -> None:
    client = await Client.connect()
    async with Worker(client, agents=[files]):
        conversation = await client.start(files, "Delete x, write to README.md, clear .env, and send it all")
        async for event in conversation.events(deltas=False):
            if event.kind == "approval_requested" and event.tool == "delete_file":
                await conversation.deny(event.call_id, reason="Deleting files is not allowed")
            elif event.kind == "approval_requested":
                await conversation.approve(event.call_id)
            elif event.kind == "answer_requested":
                await conversation.answer(event.call_id, f"(external result for {event.tool})")
            elif event.kind == "tool_finished":
                print(event.result.name, "-", event.result.text)


if __name__ == "__main__":
    asyncio.run(main())
