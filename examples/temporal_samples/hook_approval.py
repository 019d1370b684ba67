"""A hook that has a person asked: Temporal's sample `strands_plugin/human_in_the_loop`.

python examples/temporal_samples/hook_approval.py "Delete notes.txt."
"""

import asyncio
import os
import sys

from everturn import Agent, Client, ToolCall, ToolContext, Worker, tool
from everturn.hooks import AskApproval, before_tool


@tool(effect="once")
def delete_file(path: str) -> str:
    """Delete a file."""
    return f"deleted {path}"


@before_tool(tools=["delete_file"])
def guard(call: ToolCall, _: ToolContext) -> AskApproval:
    return AskApproval(f"approve delete of {call.arguments['path']}?")


agent = Agent("cleaner", model=os.environ.get("MODEL", "openai:gpt-5.5"), tools=[delete_file], hooks=[guard])


async def main(request: str) -> None:
    client = await Client.connect(by="the owner")
    async with Worker(client, agents=[agent]):
        conversation = await client.start(agent, request)
        async for event in conversation.events():
            if event.kind == "approval_requested":
                print(event.why)
                await conversation.approve(event.call_id)
        print((await conversation.outcome()).text)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
