"""The shop's agent."""

import os

from everturn import Agent, tool


@tool(effect="read")
def look_up(order_id: str) -> str:
    """What was ordered."""
    return f"order {order_id}: a desk lamp, 34.90 EUR"


@tool(needs_approval=True, effect="once")
def refund(order_id: str, cents: int) -> str:
    """Refund an order, or a part of it."""
    return f"refunded {cents / 100:.2f} EUR of order {order_id}"


clerk = Agent(
    "clerk",
    model=os.environ.get("MODEL", "openai:gpt-5.5"),
    instructions="You look after returns. Look the order up before you refund it.",
    tools=[look_up, refund],
)
