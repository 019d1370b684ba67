"""Tools that several tests give to their agents."""

from __future__ import annotations

from everturn import tool
from tests.support.scripts import page


@tool(needs_approval=True, effect="once")
def refund(order_id: str, cents: int) -> str:
    return f"{cents} back for {order_id}"


@tool
def note(number: int) -> str:
    return f"noted {number}"


@tool
def read_page(number: int) -> str:
    return page(number, 10)


@tool
def look(number: int) -> str:
    return f"saw {number}"


ask_somebody = {"name": "ask_somebody", "description": "Ask.", "parameters": {"type": "object"}}
