"""Secrets neither go into a tool nor come out of it."""

import asyncio
import json
import os

from everturn import Agent, Client, ToolCall, ToolContext, ToolResult, Worker, tool
from everturn.hooks import DenyCall, after_tool, before_tool


@before_tool(tools=["classify_text"])
def block_secrets(call: ToolCall, context: ToolContext) -> DenyCall | None:
    return DenyCall("Remove secrets before calling this tool.") if "sk-" in json.dumps(call.arguments) else None


@after_tool(tools=["classify_text"])
def redact_output(call: ToolCall, result: ToolResult, context: ToolContext) -> str | None:
    return "Output contained sensitive data." if "sk-" in result.text else None


@tool(effect="read")
def classify_text(text: str) -> str:
    """Classify text for internal routing."""
    return f"length:{len(text)}" if text != "what is the key?" else "sk-1234"


classifier = Agent(
    "classifier",
    model=os.environ.get("MODEL", "openai:gpt-5.5"),
    tools=[classify_text],
    hooks=[block_secrets, redact_output],
)


async def main() -> None:
    client = await Client.connect()
    async with Worker(client, agents=[classifier]):
        conversation = await client.start(classifier, "hello world")
        await conversation.outcome()
        for message in await conversation.transcript():
            for part in message.parts:
                if part.kind == "tool_result":
                    print(part.text)


if __name__ == "__main__":
    asyncio.run(main())
