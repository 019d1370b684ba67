"""A batch: reads all invoices of a folder at the same time, each once, however often the program is started.

python invoice_batch.py [FOLDER]
"""

import asyncio
import os
import sys
from pathlib import Path

from pydantic import BaseModel

from everturn import Agent, Client, Worker

FOLDER = Path(sys.argv[1] if len(sys.argv) > 1 else "examples/invoices")


class Invoice(BaseModel):
    number: str
    supplier: str
    cents: int


reader = Agent(
    "invoice-reader",
    model=os.environ.get("MODEL", "openai:gpt-5.5"),
    instructions="Read the invoice.",
    output=Invoice,
)


async def read(client: Client, name: str, text: str) -> Invoice | str:
    # The id and the message's id are the file's: who asks again gets the conversation that is there.
    conversation = await client.send(reader, text, id=f"invoice-{name}", message_id=name)
    outcome = await conversation.outcome()
    return outcome.value or f"{name}: {outcome.reason}"


def files() -> list[tuple[str, str]]:
    return [(file.stem, file.read_text()) for file in sorted(FOLDER.glob("*.txt"))]


async def main() -> None:
    client = await Client.connect()
    async with Worker(client, agents=[reader]):
        invoices = await asyncio.gather(*(read(client, name, text) for name, text in files()))
    for invoice in invoices:
        print(invoice)
    print(f"{sum(invoice.cents for invoice in invoices if isinstance(invoice, Invoice)) / 100:,.2f} EUR in all")


if __name__ == "__main__":
    asyncio.run(main())
