"""A research team: an editor asks two researchers at the same time, has the result checked, and writes the answer."""

import asyncio
import os

from everturn import Agent, Client, Limits, Worker, tool

MODEL = os.environ.get("MODEL", "openai:gpt-5.5")

LIBRARY = {
    "temporal": "Temporal keeps an event history of each workflow. A run may have 51,200 events.",
    "heartbeats": "An activity that sends heartbeats is noticed as lost once it is silent for its heartbeat timeout.",
}


@tool(effect="read")
def search(words: str) -> str:
    """Search the library."""
    texts = [text for topic, text in LIBRARY.items() if topic in words.lower()]
    return "\n".join(texts) or "Nothing was found. Try one word."


researcher = Agent(
    "researcher",
    model=MODEL,
    instructions="Answer the question from the library, in one sentence. Say so if it is not there.",
    description="Finds out one thing. Ask several at the same time.",
    tools=[search],
    limits=Limits(max_turns=10),
)
checker = Agent(
    "checker",
    model=MODEL,
    instructions="Search the library for each claim, and say which ones it does not support.",
    description="Checks a text against the library.",
    tools=[search],
    limits=Limits(max_turns=10),
)
editor = Agent(
    "editor",
    model=MODEL,
    instructions="Split the question, ask researchers, have your draft checked, then answer.",
    tools=[researcher, checker],
    limits=Limits(max_total_tokens=200_000),  # of all three together
)


async def main() -> None:
    client = await Client.connect()
    async with Worker(client, agents=[editor]):  # hosts the others, too
        conversation = await client.start(
            editor, "How does Temporal notice a lost activity, and how long may a run be?"
        )
        async for event in conversation.events(deltas=False):
            if event.kind == "tool_called":
                print(f"→ {event.tool}: {event.arguments['message']}")
        outcome = await conversation.outcome()
        print(outcome.text)
        print(f"({outcome.usage.total_tokens} tokens in all)")


if __name__ == "__main__":
    asyncio.run(main())
