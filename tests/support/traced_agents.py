"""Agents whose trace is looked at: a worker is killed in `pack`, `refund` waits for a person, a run goes on as new."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from everturn import Agent, tool
from tests.support.bounds import set_for_good

if events := os.environ.get("TRACED_EVENTS"):
    set_for_good(events=int(events))  # a short conversation is a long one, then

FOLDER = Path(os.environ.get("TRACED_FOLDER", "."))


@tool(effect="read")
def look_up(order_id: str) -> str:
    """Looks an order up."""
    return f"order {order_id}: a desk lamp, 34.90 EUR"


@tool
def pack(order_id: str) -> str:
    """Packs a new one. The first worker that does is killed."""
    try:
        (FOLDER / "killed").touch(exist_ok=False)
    except FileExistsError:
        return "packed"
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


@tool(needs_approval=True)
def refund(order_id: str, cents: int) -> str:
    """Pays back."""
    return f"{cents} back for {order_id}"


MODEL = "scripted:demo"

bookkeeper = Agent("bookkeeper", model="scripted:books", instructions="Keep the books.")
clerk = Agent("clerk", model=MODEL, tools=[look_up, pack, refund, bookkeeper], instructions="Help with orders.")
