"""An assistant that remembers: what it learned in one conversation, it knows in the next."""

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing

from everturn import Agent, Client, ToolContext, TurnContext, Worker, tool


class Memory:
    """Facts by person, in a database of your own. A connection for each use: tools run in threads."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.write("CREATE TABLE IF NOT EXISTS facts (person TEXT, fact TEXT, UNIQUE (person, fact))")

    def write(self, sql: str, *values: str) -> None:
        with closing(sqlite3.connect(self.file)) as database, database:
            database.execute(sql, values)

    def of(self, person: str) -> list[str]:
        with closing(sqlite3.connect(self.file)) as database:
            return [fact for (fact,) in database.execute("SELECT fact FROM facts WHERE person = ?", [person])]


@asynccontextmanager
async def open_memory() -> AsyncIterator[Memory]:
    yield Memory("memory.db")


@tool(effect="idempotent")
def remember(fact: str, context: ToolContext[Memory]) -> str:
    """Remember something about the person, in one sentence."""
    context.deps.write("INSERT OR IGNORE INTO facts VALUES (?, ?)", context.metadata["person"], fact)
    return "Remembered."


def instructions(context: TurnContext[Memory]) -> str:
    known = context.deps.of(context.metadata["person"])
    return "You help one person. Remember what will matter later.\nYou know: " + ("; ".join(known) or "nothing yet")


assistant = Agent(
    "assistant",
    model=os.environ.get("MODEL", "openai:gpt-5.5"),
    instructions=instructions,
    tools=[remember],
)


async def main() -> None:
    client = await Client.connect()
    async with Worker(client, agents=[assistant], deps=open_memory):
        for person, message in [
            ("ann", "I can't eat nuts."),
            ("ann", "Suggest a cake."),  # another conversation
            ("ben", "Suggest a cake."),
        ]:
            outcome = await client.run(assistant, message, metadata={"person": person})
            print(f"{person}: {message}\n  {outcome.text}")


if __name__ == "__main__":
    asyncio.run(main())
