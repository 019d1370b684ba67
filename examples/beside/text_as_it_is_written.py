"""The text of an answer, while the model writes it."""

import asyncio
import os

from everturn import Agent, Client, Worker

joker = Agent("joker", model=os.environ.get("MODEL", "openai:gpt-5.5"), instructions="You are a helpful assistant.")


async def main() -> None:
    client = await Client.connect()
    async with Worker(client, agents=[joker]):
        conversation, written = await client.start(joker, "Please tell me 5 jokes.", stream=True), ""
        async for event in conversation.events():
            match event.kind:
                case "text_delta":
                    written += event.text
                    print(event.text, end="", flush=True)
                case "replied":  # quick ones are told in one piece
                    print(event.message.text.removeprefix(written))


if __name__ == "__main__":
    asyncio.run(main())
