"""Answers from your documents: full-text search as a tool, and an answer that names its sources."""

import asyncio
import os
import sqlite3
import sys
from pathlib import Path

from pydantic import BaseModel, field_validator

from everturn import Agent, Client, Worker, tool

FOLDER = Path(sys.argv[1] if len(sys.argv) > 1 else "handbook")
QUESTION = sys.argv[2] if len(sys.argv) > 2 else "How long may a customer return a lamp?"


@tool(effect="read")
def search(words: str) -> list[dict[str, str]]:
    """The five paragraphs that fit best, with the file that each is from."""
    index = sqlite3.connect(":memory:")
    index.execute("CREATE VIRTUAL TABLE paragraphs USING fts5 (file, text)")
    for file in FOLDER.glob("*.md"):
        index.executemany(
            "INSERT INTO paragraphs VALUES (?, ?)",
            [(file.name, paragraph) for paragraph in file.read_text().split("\n\n")],
        )
    wanted = " OR ".join(f'"{word}"' for word in words.replace('"', "").split())
    rows = index.execute("SELECT file, text FROM paragraphs WHERE text MATCH ? ORDER BY rank LIMIT 5", [wanted])
    return [{"file": file, "text": text} for file, text in rows]


class Answer(BaseModel):
    text: str
    sources: list[str]

    @field_validator("sources")
    @classmethod
    def are_there(cls, sources: list[str]) -> list[str]:
        if missing := [source for source in sources if not (FOLDER / source).is_file()]:
            raise ValueError(f"there is no {missing}: name files that `search` gave")
        return sources


librarian = Agent(
    "librarian",
    model=os.environ.get("MODEL", "openai:gpt-5.5"),
    instructions="Answer from the documents only. Search with other words if you find nothing.",
    tools=[search],
    output=Answer,
)


async def main() -> None:
    make_folder()
    client = await Client.connect()
    async with Worker(client, agents=[librarian]):
        outcome = await client.run(librarian, QUESTION)
        answer = outcome.value
        if answer is None:
            raise SystemExit(outcome.reason)
        print(answer.text)
        print("Sources:", ", ".join(answer.sources))
        print(f"({outcome.turns} turns)")


def make_folder() -> None:
    if not FOLDER.exists():
        FOLDER.mkdir()
        (FOLDER / "returns.md").write_text(
            "# Returns\n\nA lamp may be returned for 30 days.\n\nA bulb can't be returned.\n"
        )
        (FOLDER / "shipping.md").write_text("# Shipping\n\nA lamp is sent within two days.\n")


if __name__ == "__main__":
    asyncio.run(main())
