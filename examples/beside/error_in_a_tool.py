"""What the model reads if a tool fails."""

import asyncio
import os

from everturn import Agent, Client, ToolCall, ToolContext, ToolResult, Worker, tool
from everturn.hooks import after_tool


@after_tool
def in_plain_words(call: ToolCall, result: ToolResult, context: ToolContext) -> ToolResult | None:
    if not result.is_error:
        return None
    print(f"A tool call failed with the following error: {result.text}")
    kept = result.model_dump(exclude={"content"})
    message = {"kind": "text", "text": "An internal server error occurred. Please try again later."}
    return ToolResult.model_validate({**kept, "content": [message]})


@tool(effect="read")
def get_user_profile(user_id: str) -> str:
    """Fetches a user profile."""
    raise ValueError(f"Could not retrieve profile for user_id: {user_id}")


support = Agent(
    "support", model=os.environ.get("MODEL", "openai:gpt-5.5"), tools=[get_user_profile], hooks=[in_plain_words]
)


async def main() -> None:
    client = await Client.connect()
    async with Worker(client, agents=[support]):
        print((await client.run(support, "Who is user_7?")).text)


if __name__ == "__main__":
    asyncio.run(main())
