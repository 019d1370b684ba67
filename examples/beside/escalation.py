"""A handoff with input of a type, and code that runs as it is made."""

import asyncio
import os

from pydantic import BaseModel

from everturn import Agent, Client, HandOff, ToolCall, ToolContext, Worker
from everturn.hooks import before_tool

MODEL = os.environ.get("MODEL", "openai:gpt-5.5")


class EscalationData(BaseModel):
    reason: str


@before_tool(tools=["transfer_to_escalation"])
async def on_handoff(call: ToolCall, context: ToolContext) -> None:
    print(f"Escalation agent called with reason: {EscalationData.model_validate(call.arguments).reason}")


escalation = Agent("escalation", model=MODEL, instructions="You calm people down.")
triage = Agent("triage", model=MODEL, handoff_to=[HandOff(escalation, input=EscalationData)], hooks=[on_handoff])


async def main() -> None:
    client = await Client.connect()
    async with Worker(client, agents=[triage]):
        print((await client.run(triage, "I have been waiting for weeks!")).text)


if __name__ == "__main__":
    asyncio.run(main())
