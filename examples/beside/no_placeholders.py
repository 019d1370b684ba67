"""An answer that is looked at, and asked for again if it will not do."""

import asyncio
import os
from typing import Annotated

from pydantic import AfterValidator

from everturn import Agent, Client, Worker


def real(text: str) -> str:
    if "PLACEHOLDER" in text:
        raise ValueError("Response contains placeholder text. Please provide real data.")
    return text


assistant = Agent(
    "assistant",
    model=os.environ.get("MODEL", "openai:gpt-5.5"),
    output=Annotated[str, AfterValidator(real)],
)


async def main() -> None:
    client = await Client.connect()
    async with Worker(client, agents=[assistant]):
        print((await client.run(assistant, "Hello")).value)


if __name__ == "__main__":
    asyncio.run(main())
