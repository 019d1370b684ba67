"""A shop's clerk for a chat: a refund asks the person on the page, and the page itself says where they are.

MODEL=openai:gpt-5.5 everturn worker --agents examples/front_ends/clerk_chat.py
"""

import os

from everturn import Agent, tool


@tool(needs_approval=True, effect="once")
def refund(order_id: str, cents: int) -> str:
    """Refund an order."""
    return f"Refunded {cents / 100:.2f} EUR for order {order_id}."


where_are_you = {
    "name": "where_are_you",
    "description": "The town that the user's browser is in.",
    "parameters": {"type": "object", "properties": {}},
}

clerk = Agent("clerk", model=os.environ.get("MODEL", "openai:gpt-5.5"), tools=[refund, where_are_you])
