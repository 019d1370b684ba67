"""Two tools, one of which knows who plays."""

import asyncio
import os
import random

from everturn import Agent, Client, ToolContext, Worker


def roll_dice() -> str:
    """Roll a six-sided die and return the result."""
    return str(random.randint(1, 6))


def get_player_name(context: ToolContext) -> str:
    """Get the player's name."""
    return str(context.metadata["player"])


game = Agent(
    "dice",
    model=os.environ.get("MODEL", "openai:gpt-5.5"),
    instructions="You're a dice game. Roll the die and see if it matches the user's guess. Use the player's name.",
    tools=[roll_dice, get_player_name],
)


async def main() -> None:
    client = await Client.connect()
    async with Worker(client, agents=[game]):
        print((await client.run(game, "My guess is 4", metadata={"player": "Anne"})).text)


if __name__ == "__main__":
    asyncio.run(main())
