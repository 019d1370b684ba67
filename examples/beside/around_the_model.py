"""Before and after each request to the model."""

import asyncio
import os

from everturn import Agent, Client, Reply, TurnContext, Worker
from everturn.hooks import Hooks, ModelInput

log: list[str] = []


class Around(Hooks):
    def before_model(self, given: ModelInput, context: TurnContext) -> None:
        log.append("before")

    def after_model(self, reply: Reply, context: TurnContext) -> None:
        log.append("after")


assistant = Agent("assistant", model=os.environ.get("MODEL", "openai:gpt-5.5"), hooks=[Around()])


async def main() -> None:
    client = await Client.connect()
    async with Worker(client, agents=[assistant]):
        await client.run(assistant, "Hello!")
        print(log)


if __name__ == "__main__":
    asyncio.run(main())
