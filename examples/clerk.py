"""A clerk that refunds orders, each one after a person has said yes.

    everturn up --agents examples/clerk.py
    everturn run --agent clerk --id order-81 "Order 81 arrived broken."
    everturn approve order-81

The second and third command go into terminals of their own.
"""

import os

from everturn import Agent, tool


@tool(effect="read")
def look_up(order_id: str) -> dict[str, str | int]:
    """What was ordered, and what it cost."""
    return {"order_id": order_id, "item": "desk lamp", "cents": 3490}


@tool(needs_approval=True, effect="once")
def refund(order_id: str, cents: int) -> str:
    """Refund an order, or a part of it."""
    return f"Refunded {cents / 100:.2f} EUR for order {order_id}."


clerk = Agent(
    "clerk",
    model=os.environ.get("MODEL", "openai:gpt-5.5"),
    instructions="You look after orders. Look an order up before you refund it. Answer in two sentences.",
    tools=[look_up, refund],
)
