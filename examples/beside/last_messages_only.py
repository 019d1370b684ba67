"""The model is shown the end of the conversation; the transcript keeps all of it."""

import asyncio
import os
from dataclasses import replace
from datetime import timedelta

from everturn import Agent, Client, TurnContext, Worker
from everturn.hooks import ModelInput, before_model


@before_model
def drop_old_messages(given: ModelInput, context: TurnContext) -> ModelInput:
    return replace(given, messages=given.messages[-5:])


assistant = Agent(
    "assistant",
    model=os.environ.get("MODEL", "openai:gpt-5.5"),
    instructions="Answer concisely.",
    hooks=[drop_old_messages],
)


async def main() -> None:
    client = await Client.connect()
    async with Worker(client, agents=[assistant]):
        conversation = await client.start(assistant, "Explain quines", keep_open=timedelta(minutes=1))
        for question in ("In C?", "In Lisp?", "And shorter?"):
            await conversation.reply()
            await conversation.send(question)
        print(await conversation.reply())
        print(len(await conversation.transcript()), "messages in the transcript")
        await conversation.close()


if __name__ == "__main__":
    asyncio.run(main())
