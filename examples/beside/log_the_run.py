"""A line when the model is asked, when it has replied, and at the end with the usage."""

import asyncio
import os

from everturn import Agent, Client, Reply, TurnContext, Worker
from everturn.hooks import Hooks, ModelInput


class Logging(Hooks):
    streams = True

    def before_model(self, given: ModelInput, context: TurnContext) -> None:
        print(f"Asking for {context.agent}")

    def after_model(self, reply: Reply, context: TurnContext) -> None:
        print(f"{context.agent} produced {len(reply.message.parts)} parts")


assistant = Agent(
    "assistant",
    model=os.environ.get("MODEL", "openai:gpt-5.5"),
    instructions="Be concise.",
    hooks=[Logging()],
)


async def main() -> None:
    client = await Client.connect()
    async with Worker(client, agents=[assistant]):
        outcome = await client.run(assistant, "Explain quines")
        print(f"assistant finished: {outcome.status}, {outcome.usage.output_tokens} tokens")
        print(outcome.text)


if __name__ == "__main__":
    asyncio.run(main())
