"""A bookkeeper on real files: it reads invoices, books those that add up, writes a report, and pays what is due.

    EVERTURN_AGENTS=examples/bookkeeper.py BOOKS_DIR=invoices MODEL=openai:gpt-5.5 everturn worker
    everturn run --agent bookkeeper "Do October's books."

`everturn demo` runs it, and kills its worker in the middle.
"""

from __future__ import annotations

import csv
import os
import threading
import time
from pathlib import Path
from typing import Annotated

from pydantic import Field

from everturn import Agent, ToolContext, ToolFailed, tool

BOOKS = Path(os.environ.get("BOOKS_DIR", "invoices"))
JOURNAL = BOOKS / "journal.csv"
PAYMENTS = BOOKS / "payments.csv"
REPORT = BOOKS / "report.md"

Cents = Annotated[int, Field(gt=0, description="The amount in euro cents")]


@tool(effect="read")
def list_files() -> list[str]:
    """The names of the files in the folder."""
    return sorted(path.name for path in BOOKS.iterdir() if path.is_file())


@tool(effect="read")
def read_file(name: str) -> str:
    """The text of one file of the folder."""
    path = (BOOKS / name).resolve()
    # What a model writes is untrusted: no ../../.ssh/id_rsa.
    if path.parent != BOOKS.resolve() or not path.is_file():
        raise ToolFailed(f"There is no file {name!r}. list_files shows those there are.")
    return path.read_text()


@tool(effect="idempotent")
def book(invoice: str, supplier: str, cents: Cents, context: ToolContext) -> str:
    """Enter an invoice into the journal."""
    key = context.idempotency_key
    with _one_at_a_time:
        # A worker may die right after the line was written, and before it could say so. Another one then runs the
        # same call with the same key, and finds the line.
        if key not in _keys(JOURNAL):
            time.sleep(0.6)  # the ledger is slow
            _append(JOURNAL, key, invoice, supplier, cents)
            time.sleep(0.6)
    return f"Booked: {invoice}, {supplier}, {cents / 100:.2f} EUR."


@tool(effect="idempotent")
def write_report(markdown: str) -> str:
    """Write the month's report, in place of the one that may be there."""
    REPORT.write_text(markdown)
    return f"{REPORT.name} has {len(markdown.splitlines())} lines now."


@tool(effect="once", needs_approval=True)
def pay(invoice: str, iban: str, cents: Cents, context: ToolContext) -> str:
    """Transfer money to a supplier. A person has to approve it."""
    _append(PAYMENTS, context.idempotency_key, invoice, iban, cents)
    return f"Paid: {cents / 100:.2f} EUR for {invoice} to {iban}."


_one_at_a_time = threading.Lock()


def _append(path: Path, *row: object) -> None:
    with path.open("a", newline="") as file:
        csv.writer(file).writerow(row)


def _keys(path: Path) -> set[str]:
    if not path.exists():
        return set()
    with path.open(newline="") as file:
        return {row[0] for row in csv.reader(file)}


bookkeeper = Agent(
    "bookkeeper",
    model=os.environ.get("MODEL", "openai:gpt-5.5"),
    instructions=(
        "You keep the books of a small office. Read every invoice in the folder, and check that its lines add up to "
        "its total. Book each invoice that does, once, all in one reply. Then write the report: a table of what is "
        "booked with its sum, and below it what does not add up, and why. Never pay an invoice that does not add up. "
        "Pay only what you are asked to pay. At the end, say in two sentences what you did."
    ),
    tools=[list_files, read_file, book, write_report, pay],
)
