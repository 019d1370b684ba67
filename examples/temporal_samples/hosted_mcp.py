"""The tools of an MCP server that OpenAI calls, each after an approval: Temporal's sample `openai_agents/hosted_mcp`.

python examples/temporal_samples/hosted_mcp.py "Which language is this repo written in?"
"""

import asyncio
import os
import sys

from everturn import Agent, Client, Worker

server = {
    "type": "mcp",
    "server_label": "gitmcp",
    "server_url": "https://gitmcp.io/openai/codex",
    "require_approval": "always",
}
agent = Agent("assistant", model=os.environ.get("MODEL", "openai:gpt-5.5"), tools=[server])


async def main(question: str) -> None:
    client = await Client.connect(by="the owner")
    async with Worker(client, agents=[agent]):
        conversation = await client.start(agent, question)
        async for event in conversation.events():
            if event.kind == "approval_requested":
                print(f"Approve {event.arguments['name']}?")
                await conversation.approve(event.call_id)
        print((await conversation.outcome()).text)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
