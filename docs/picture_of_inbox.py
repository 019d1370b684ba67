"""Takes docs/pictures/inbox.png: real conversations, in the real inbox. `docs/make_screenshots.py` calls `take`.

.venv/bin/python docs/picture_of_inbox.py
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import uvicorn
from playwright.async_api import Page, async_playwright

from everturn import Agent, Client, Conversation, Model, Worker, tool
from everturn.devserver import DevServer
from everturn.testing import ScriptedModel, call, fail, say
from everturn.web.app import Inbox
from everturn.web.server import listen

PICTURE = Path(__file__).parent / "pictures" / "inbox.png"


@tool(effect="read")
def look_up(order_id: str) -> dict[str, str | int]:
    """What was ordered, and what it cost."""
    return {"order_id": order_id, "item": "desk lamp", "cents": 3490, "delivered": "2026-05-12"}


@tool(needs_approval=True, effect="once")
def refund(order_id: str, cents: int, reason: str) -> str:
    """Refund an order, or a part of it."""
    return f"Refunded {cents / 100:.2f} EUR for order {order_id}: {reason}."


CLERK = [
    [say("I look the order up first.", thinking="A refund needs the price."), call("look_up", {"order_id": "81"})],
    [
        say("It is a **desk lamp** for 34.90 EUR, delivered nine days ago:\n\n- within the 30 days\n"
            "- never refunded\n\nI ask for the refund in full."),
        call("refund", {"order_id": "81", "cents": 3490, "reason": "arrived broken"}, id="call_refund_81"),
    ],
    "The 34.90 EUR are on their way back to you. I am sorry about the lamp.",
]  # fmt: skip
TALK = ["We open at nine, and the bus 12 stops in front of the door."]
STALLED = [fail(401)]


async def take(server: DevServer, *, dark: bool = False, path: Path = PICTURE) -> None:
    """Runs a few conversations on this server, and photographs the one that waits for a person."""
    client = await Client.connect(server.address, task_queue="inbox-picture", by="ada@example.org")
    with ScriptedModel(CLERK) as clerk, ScriptedModel(TALK) as talk, ScriptedModel(STALLED) as stalled:
        models = {"clerk": clerk, "concierge": talk, "bookkeeper": stalled}
        agents = [
            Agent(name, model=Model("scripted:demo", base_url=model.base_url), tools=[look_up, refund])
            for name, model in models.items()
        ]
        async with Worker(client, agents=agents), _served(client) as address:
            for name, message in (("visit-7", "When do you open?"), ("visit-8", "How do I get to you?")):
                await (await client.start("concierge", message, id=name)).outcome()
            await _until(await client.start("bookkeeper", "Book the invoices.", id="books-may"), "stalled")
            for name in ("order-79", "order-80", "order-81"):
                waits = await client.start("clerk", "My order 81 arrived broken. Can I have my money back?", id=name)
                await _until(waits, "approval_requested")
            await _photograph(address, path, dark=dark)
    print(f"{path.name} is taken")


async def _until(conversation: Conversation, kind: str) -> None:
    await anext(event async for event in conversation.events() if event.kind == kind)


@asynccontextmanager
async def _served(client: Client) -> AsyncIterator[str]:
    bound = listen("127.0.0.1", 0)
    inbox = Inbox(client)
    server = uvicorn.Server(uvicorn.Config(inbox.app, log_config=None, access_log=False))
    serving = asyncio.create_task(server.serve(sockets=[bound]))
    try:
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"
    finally:
        inbox.end_streams()
        server.should_exit = True
        await serving
        bound.close()


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
        await page.locator("#conversations a").nth(5).wait_for()
        await page.get_by_text("awaiting approval", exact=True).first.wait_for()
        await page.screenshot(path=path)
        await chromium.close()


async def main() -> None:
    async with DevServer() as server:
        await take(server)


if __name__ == "__main__":
    asyncio.run(main())
