"""Takes docs/pictures/tool-as-an-activity.png and tool-run-locally.png: one call both ways, in the Temporal Web UI.

.venv/bin/python docs/picture_of_local_tools.py
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

from playwright.async_api import Page, async_playwright

from everturn import Agent, Client, Model, Retry, Worker, tool
from everturn.devserver import DevServer
from everturn.testing import ScriptedModel, call

PICTURES = Path(__file__).parent / "pictures"
CHROMIUM = "/usr/bin/chromium"
NAMES = {False: "tool-as-an-activity.png", True: "tool-run-locally.png"}
WIDTH, HEIGHT, SHOWN = 1100, 1800, 620


async def converse(client: Client, *, local: bool) -> str:
    """A conversation whose tool is busy the first time that it is called."""
    busy = [True]

    @tool(effect="read", timeout=timedelta(seconds=5), local=local)
    def look_up(order_id: str) -> str:
        """Look an order up."""
        if busy:
            busy.pop()
            raise Retry("The warehouse is busy.", after=0.2)
        return f"order {order_id}: a lamp, 34.90 EUR"

    with ScriptedModel([call("look_up", {"order_id": "81"}), "It is a lamp."]) as model:
        agent = Agent("clerk", model=Model("scripted:demo", base_url=model.base_url), tools=[look_up])
        async with Worker(client, agents=[agent]):
            conversation = await client.start(agent, "What is order 81?")
            await conversation.outcome()
            return conversation.id


async def photograph(page: Page, *, local: bool) -> None:
    await page.get_by_text("turn 2").first.wait_for()
    await page.get_by_text("look_up").first.click()
    await page.get_by_text("Close", exact=True).wait_for()
    await page.wait_for_timeout(2_000)  # what moves comes to rest
    path, title = PICTURES / NAMES[local], await page.get_by_role("heading", name="Timeline").bounding_box()
    assert title
    clip = {"x": title["x"] - 20, "y": title["y"] - 10, "width": WIDTH - title["x"], "height": SHOWN}
    await page.screenshot(path=path, clip=clip)
    print(f"{path.name}: {path.stat().st_size // 1024} KB")


async def main() -> None:
    async with DevServer() as server, async_playwright() as playwright:
        client = await Client.connect(server.address)
        chromium = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for local in NAMES:
            conversation_id = await converse(client, local=local)
            page = await chromium.new_page(viewport={"width": WIDTH, "height": HEIGHT})
            await page.goto(f"{server.ui_url}/namespaces/default/workflows/{conversation_id}")
            await photograph(page, local=local)
        await chromium.close()


if __name__ == "__main__":
    asyncio.run(main())
