"""A conversation that goes on, found by its id."""

import asyncio
import os

from everturn import Agent, Client, Worker

assistant = Agent("assistant", model=os.environ.get("MODEL", "openai:gpt-5.5"), instructions="Reply very concisely.")


async def main() -> None:
    client = await Client.connect()
    async with Worker(client, agents=[assistant]):
        for question in ("What city is the Golden Gate Bridge in?", "What state is it in?"):
            conversation = await client.send(assistant, question, id="conversation_123")
            print(await conversation.reply())


if __name__ == "__main__":
    asyncio.run(main())
