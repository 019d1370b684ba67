"""Tools, agents among them, that only some users have."""

import asyncio
import os

from everturn import Agent, Client, Tool, TurnContext, Worker

MODEL = os.environ.get("MODEL", "openai:gpt-5.5")

spanish = Agent("respond_spanish", model=MODEL, instructions="Reply in Spanish.", description="Respond in Spanish")
french = Agent("respond_french", model=MODEL, instructions="Reply in French.", description="Respond in French")


def by_preference(context: TurnContext, tools: list[Tool]) -> list[Tool]:
    both = context.metadata["languages"] == "french_spanish"
    return [tool for tool in tools if both or tool.name != "respond_french"]


orchestrator = Agent(
    "orchestrator",
    model=MODEL,
    instructions="Call all available tools to respond in different languages.",
    tools=[spanish, french],
    prepare_tools=by_preference,
)


async def main() -> None:
    client = await Client.connect()
    async with Worker(client, agents=[orchestrator]):
        conversation = await client.start(orchestrator, "How are you?", metadata={"languages": "spanish"})
        print(await conversation.reply())
        print([tool.name for tool in (await conversation.prompt(turn=1)).tools])


if __name__ == "__main__":
    asyncio.run(main())
