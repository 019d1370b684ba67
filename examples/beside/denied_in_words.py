"""A call that is denied, with the reason that the model reads."""

import asyncio
import os

from everturn import Agent, Client, Worker, tool


@tool(effect="once", needs_approval=True)
def publish(title: str) -> str:
    """Publish an announcement."""
    return f"published {title}"


writer = Agent("writer", model=os.environ.get("MODEL", "openai:gpt-5.5"), tools=[publish])


async def main() -> None:
    client = await Client.connect()
    async with Worker(client, agents=[writer]):
        conversation = await client.start(writer, "Publish the news")
        async for event in conversation.events(deltas=False):
            if event.kind == "approval_requested":
                await conversation.deny(event.call_id, reason="The reviewer wants another title.")
            elif event.kind == "tool_finished":
                print(event.result.text)
        print((await conversation.outcome()).text)


if __name__ == "__main__":
    asyncio.run(main())
