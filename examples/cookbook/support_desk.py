"""A support desk: it pays small amounts back by itself, and asks a person about larger ones."""

import asyncio
import os

from everturn import Agent, Client, ToolFailed, Worker, tool

ORDERS: dict[str, dict[str, str | int]] = {
    "81": {"item": "desk lamp", "cents": 3490},
    "82": {"item": "light bulb", "cents": 450},
}


@tool(effect="read")
def look_up(order_id: str) -> dict[str, str | int]:
    """What was ordered, and what it cost."""
    if order_id not in ORDERS:
        raise ToolFailed(f"There is no order {order_id}. Ask the customer for the number on the invoice.")
    return ORDERS[order_id]


@tool(effect="once", needs_approval=lambda call: call["cents"] > 2_000)
def refund(order_id: str, cents: int) -> str:
    """Refund an order, or a part of it."""
    return f"Refunded {cents / 100:.2f} EUR for order {order_id}."


desk = Agent(
    "support-desk",
    model=os.environ.get("MODEL", "openai:gpt-5.5"),
    instructions="You look after orders. Look an order up before you refund it. Answer in two sentences.",
    tools=[look_up, refund],
)


async def main() -> None:
    client = await Client.connect(by="manager@shop.example")
    async with Worker(client, agents=[desk]):
        conversation = await client.start(desk, "The lamp (81) and the bulb (82) came in pieces. I want my money back.")
        async for event in conversation.events(deltas=False):
            if event.kind == "approval_requested":
                cents = int(str(event.arguments["cents"]))
                answer = await asyncio.to_thread(input, f"? Refund {cents / 100:.2f} EUR? [y/n] ")
                if answer == "y":
                    await conversation.approve(event.call_id, expected=event.arguments)
                else:
                    await conversation.deny(event.call_id, "The manager said no.")
            elif event.kind == "decided":
                print(f"  {event.verdict} by {event.by}")
            elif event.kind == "tool_finished":
                print("✓", event.result.text)
        print((await conversation.outcome()).text)


if __name__ == "__main__":
    asyncio.run(main())
