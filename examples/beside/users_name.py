"""Who the user is: in the instructions and in a tool, and nowhere that the model could change it."""

import asyncio
import os

from everturn import Agent, Client, ToolContext, TurnContext, Worker, tool


def instructions(context: TurnContext) -> str:
    return f"The user's name is {context.metadata['name']}. The date is {context.now:%Y-%m-%d}. Use their name."


@tool(effect="read")
def fetch_user_age(context: ToolContext) -> str:
    """Fetch the age of the user."""
    return f"The user {context.metadata['name']} is 47 years old"


assistant = Agent(
    "assistant",
    model=os.environ.get("MODEL", "openai:gpt-5.5"),
    instructions=instructions,
    tools=[fetch_user_age],
)


async def main() -> None:
    client = await Client.connect()
    async with Worker(client, agents=[assistant]):
        user = {"name": "John", "uid": 123}
        print((await client.run(assistant, "What is the age of the user?", metadata=user)).text)


if __name__ == "__main__":
    asyncio.run(main())
