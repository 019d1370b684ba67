"""An agent that another one asks with input of a type, and not in words."""

import asyncio
import os

from pydantic import BaseModel, Field

from everturn import Agent, Client, Worker

MODEL = os.environ.get("MODEL", "openai:gpt-5.5")


class TranslationInput(BaseModel):
    text: str = Field(description="Text to translate.")
    source: str = Field(description="Source language.")
    target: str = Field(description="Target language.")


translator = Agent(
    "translate_text",
    model=MODEL,
    instructions="Translate between languages.",
    description="Translate text.",
    input=TranslationInput,
)
editor = Agent("editor", model=MODEL, tools=[translator])


async def main() -> None:
    client = await Client.connect()
    async with Worker(client, agents=[editor]):
        conversation = await client.start(editor, "Say 'Hello' in Spanish.")
        async for event in conversation.events(deltas=False):
            if event.kind == "tool_called":
                print(TranslationInput.model_validate(event.arguments))
        print((await conversation.outcome()).text)


if __name__ == "__main__":
    asyncio.run(main())
