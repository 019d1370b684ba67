"""Whole conversations for other programs: read from the history, and written as JSON lines, Markdown or SQLite.

    exported = await read_conversation(client, "order-81")
    Path("order-81.md").write_text(to_markdown(exported))
    write_sqlite("conversations.db", [exported])

Neither needs a worker. The transcript is whole, through all of a conversation's runs, whatever the model is shown of
it. Times, tokens and costs are there as far back as the namespace keeps histories.
"""

from everturn.exporting.jsonl import to_jsonl
from everturn.exporting.markdown import to_markdown
from everturn.exporting.reading import CallTimes, Exported, MessageFacts, TurnFacts, read_conversation
from everturn.exporting.sqlite import SCHEMA, write_sqlite
from everturn.history.open_calls import OpenCall

__all__ = [
    "SCHEMA",
    "CallTimes",
    "Exported",
    "MessageFacts",
    "OpenCall",
    "TurnFacts",
    "read_conversation",
    "to_jsonl",
    "to_markdown",
    "write_sqlite",
]
