"""A data analyst over SQLite: it asks in SQL, and draws charts that the model sees and you find as files."""

import asyncio
import base64
import os
import re
import sqlite3
from contextlib import closing
from io import BytesIO
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from everturn import Agent, Client, Image, Text, ToolFailed, Worker, tool

DATABASE = Path("sales.db")


def rows_of(sql: str) -> list[dict[str, Any]]:
    """Nothing can be written: the database is opened to be read only."""
    with closing(sqlite3.connect(f"file:{DATABASE}?mode=ro", uri=True)) as database:
        database.row_factory = sqlite3.Row
        try:
            return [dict(row) for row in database.execute(sql).fetchmany(1_000)]
        except sqlite3.Error as error:
            raise ToolFailed(f"{error}. There is one table: sales(month, product, cents).") from error


@tool(effect="read")
def query(sql: str) -> list[dict[str, Any]]:
    """Run a SELECT on the table sales(month, product, cents). 1,000 rows at most."""
    return rows_of(sql)


@tool(effect="idempotent")
def bar_chart(sql: str, title: str) -> list[Text | Image]:
    """Draw the result of a SELECT with two columns: labels and numbers."""
    rows = [list(row.values()) for row in rows_of(sql)]
    figure = Figure(figsize=(6, 3), layout="constrained")
    axes = figure.subplots()
    axes.bar([str(label) for label, _ in rows], [number for _, number in rows])
    axes.set_title(title)
    drawn = BytesIO()
    figure.savefig(drawn, format="png")
    file = Path(re.sub(r"\W+", "-", title.lower()) + ".png")
    file.write_bytes(drawn.getvalue())
    picture = base64.b64encode(drawn.getvalue()).decode()
    return [Text(text=f"Saved as {file}."), Image(data=picture, media_type="image/png")]


analyst = Agent(
    "analyst",
    model=os.environ.get("MODEL", "openai:gpt-5.5"),
    instructions="You answer questions about the sales of a shop. Draw a chart, look at it, then answer.",
    tools=[query, bar_chart],
)


async def main() -> None:
    make_database()
    client = await Client.connect()
    async with Worker(client, agents=[analyst]):
        conversation = await client.start(analyst, "Which product sells best, and since when?")
        async for event in conversation.events(deltas=False):
            if event.kind == "tool_finished":
                pictures = sum(part.kind == "image" for part in event.result.content)
                print(f"✓ {event.result.name}: {event.result.text}" + f" ({pictures} picture)" * (pictures > 0))
        print((await conversation.outcome()).text)


def make_database() -> None:
    if not DATABASE.exists():
        sales = [
            ("2026-09", "lamp", 34_900),
            ("2026-09", "bulb", 41_000),
            ("2026-10", "lamp", 69_800),
            ("2026-10", "bulb", 9_000),
        ]
        with closing(sqlite3.connect(DATABASE)) as database, database:
            database.execute("CREATE TABLE sales (month TEXT, product TEXT, cents INTEGER)")
            database.executemany("INSERT INTO sales VALUES (?, ?, ?)", sales)


if __name__ == "__main__":
    asyncio.run(main())
