"""A line for each request to the model."""

import asyncio
import os

from everturn import Agent, Client, TurnContext, Worker
from everturn.hooks import ModelInput, before_model


@before_model
def log_request(given: ModelInput, context: TurnContext) -> None:
    print(f"turn {context.turn}: {len(given.messages)} messages")


assistant = Agent("assistant", model=os.environ.get("MODEL", "openai:gpt-5.5"), hooks=[log_request])


async def main() -> None:
    client = await Client.connect()
    async with Worker(client, agents=[assistant]):
        print((await client.run(assistant, "Hello!")).text)


if __name__ == "__main__":
    asyncio.run(main())
