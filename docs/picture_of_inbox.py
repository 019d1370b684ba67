"""Takes docs/pictures/inbox.png: real conversations, in the real inbox. `docs/make_screenshots.py` calls `take`.

.venv/bin/python docs/picture_of_inbox.py
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from playwright.async_api import Page, async_playwright

from everturn import Agent, Client, Conversation, Model, Worker, tool
from everturn.devserver import DevServer
from everturn.testing import ScriptedModel, call, fail, say

DOCS = Path(__file__).parent
sys.path.append(str(DOCS.parent))

from tests.ui.inbox import served  # noqa: E402 - it is not installed, but lies beside us

PICTURE = DOCS / "pictures" / "inbox.png"


@tool(effect="read")
def look_up(order_id: str) -> dict[str, str | int]:
    """What was ordered, and what it cost."""
    _, item, cents, _ = ORDERS[order_id]
    return {"order_id": order_id, "item": item, "cents": cents, "delivered": "2026-05-12"}


@tool(needs_approval=True, effect="once")
def refund(order_id: str, cents: int, reason: str) -> str:
    """Refund an order, or a part of it."""
    return f"Refunded {cents / 100:.2f} EUR for order {order_id}: {reason}."


ORDERS = {
    "79": ("My kettle, order 79, leaks. Please take it back.", "kettle", 5400, "leaks"),
    "80": ("Half of order 80 never came.", "set of six glasses", 1950, "three of six are missing"),
    "81": ("My order 81 arrived broken. Can I have my money back?", "desk lamp", 3490, "arrived broken"),
}


def clerk_says(messages: list[dict[str, Any]]) -> Any:
    order_id = next(number for number, (said, *_) in ORDERS.items() if said in str(messages))
    _, item, cents, reason = ORDERS[order_id]
    if messages[-1]["role"] == "user":
        return [
            say("I look the order up first.", thinking="It needs the price."),
            call("look_up", {"order_id": order_id}),
        ]
    return [
        say(
            f"It is a **{item}** for {cents / 100:.2f} EUR, delivered nine days ago:\n\n- within the 30 days\n"
            "- never refunded\n\nI ask for the refund in full."
        ),
        call("refund", {"order_id": order_id, "cents": cents, "reason": reason}, id=f"call_refund_{order_id}"),
    ]


TALK = ["We open at nine, and the bus 12 stops in front of the door."]
STALLED = [fail(401)]


async def take(server: DevServer, *, dark: bool = False, path: Path = PICTURE) -> None:
    """Runs a few conversations on this server, and photographs the one that waits for a person."""
    client = await Client.connect(server.address, task_queue="inbox-picture", by="ada@example.org")
    with ScriptedModel(clerk_says) as clerk, ScriptedModel(TALK) as talk, ScriptedModel(STALLED) as stalled:
        models = {"clerk": clerk, "concierge": talk, "bookkeeper": stalled}
        agents = [
            Agent(name, model=Model("scripted:demo", base_url=model.base_url), tools=[look_up, refund])
            for name, model in models.items()
        ]
        async with Worker(client, agents=agents), served(client) as address:
            for name, message in (("visit-7", "When do you open?"), ("visit-8", "How do I get to you?")):
                await (await client.start("concierge", message, id=name)).outcome()
            await _until(await client.start("bookkeeper", "Book the invoices.", id="books-may"), "stalled")
            for number, (message, *_) in ORDERS.items():
                waits = await client.start("clerk", message, id=f"order-{number}")
                await _until(waits, "approval_requested")
            await _photograph(address, path, dark=dark)
    print(f"{path.name} is taken")


async def _until(conversation: Conversation, kind: str) -> None:
    await anext(event async for event in conversation.events() if event.kind == kind)


async def _photograph(address: str, path: Path, *, dark: bool) -> None:
    async with async_playwright() as playwright:
        chromium = await playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page: Page = await chromium.new_page(
            viewport={"width": 1180, "height": 760},
            device_scale_factor=1.5,
            color_scheme="dark" if dark else "light",
            locale="en-GB",
        )
        await page.goto(f"{address}/#order-81")
        await page.locator(".call[data-state=waiting]").wait_for()
        await page.locator("#conversations .asks:visible").nth(2).wait_for()
        await page.locator("#conversations small", has_text="visit-8").wait_for()
        await page.get_by_text("awaiting approval", exact=True).first.wait_for()
        await page.screenshot(path=path)
        await chromium.close()


async def main() -> None:
    async with DevServer() as server:
        await take(server)


if __name__ == "__main__":
    asyncio.run(main())
