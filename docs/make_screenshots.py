"""Takes the pictures in docs/pictures: real runs, in the real Temporal Web UI, the real inbox and a real terminal.

    .venv/bin/python docs/make_screenshots.py

Starts a Temporal dev server, runs `everturn demo` on it (which kills a worker), lets a second conversation wait for
its approval, and photographs both with Debian's chromium, which needs fonts-noto-color-emoji. Then come the inbox's and
the chat's pictures, which have scripts of their own, as the picture of a trace has (picture_of_trace.py). Look at the
pictures afterwards.
"""

from __future__ import annotations

import asyncio
import os
import runpy
import sys
from pathlib import Path

from playwright.async_api import Page, async_playwright

from everturn import Client, Worker
from everturn.devserver import DevServer
from everturn.loading import load_agents
from everturn.testing import ScriptedModel

DOCS = Path(__file__).parent
EXAMPLES = DOCS.parent / "examples"
PICTURES = DOCS / "pictures"
OTHERS = ("picture_of_inbox.py", "picture_of_chat.py")

CHROMIUM = "/usr/bin/chromium"
WIDTH, HEIGHT, SCALE = 1440, 1600, 1.5
MARGIN = 14
AXIS = 90
"""Below the last row of the timeline come the labels of its axis."""

# What is photographed: the page beside its menu, from the title down to the lowest of what is named.
FRAME = """lowest => {
  const title = [...document.querySelectorAll('h1')].find(one => one.innerText.trim()).getBoundingClientRect();
  const page = document.querySelector('#content').getBoundingClientRect();
  const bottoms = [...document.querySelectorAll(lowest)].map(one => one.getBoundingClientRect().bottom);
  return {left: page.left, right: page.right, top: title.top, bottom: Math.max(...bottoms)};
}"""


async def _save(page: Page, name: str, *, down_to: str, and_below: int = MARGIN) -> None:
    await page.wait_for_timeout(2_000)  # what moves comes to rest
    frame = await page.evaluate(FRAME, down_to)
    top = frame["top"] - MARGIN
    clip = {"x": frame["left"], "y": top, "width": frame["right"] - frame["left"]}
    path = PICTURES / name
    await page.screenshot(path=path, clip={**clip, "height": frame["bottom"] + and_below - top})
    print(f"{name}: {path.stat().st_size // 1024} KB")


async def photograph(ui: str, demo: str) -> None:
    PICTURES.mkdir(exist_ok=True)
    conversations = f"{ui}/namespaces/default/workflows"
    async with async_playwright() as playwright:
        chromium = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = await chromium.new_page(viewport={"width": WIDTH, "height": HEIGHT}, device_scale_factor=SCALE)
        await page.goto(f"{conversations}/{demo}")
        await page.get_by_text("turn 6").first.wait_for()
        await page.get_by_role("button", name="Descending").click()
        await page.get_by_role("button", name="Ascending").wait_for()
        await _save(page, "demo-in-the-web-ui.png", down_to="#content button", and_below=AXIS)
        await page.goto(f"{conversations}/order-81")
        await page.get_by_text("look_up").first.wait_for()
        await page.get_by_text("User Metadata", exact=True).click()
        await page.frame_locator("iframe").nth(2).get_by_text("awaiting approval").wait_for()
        # What comes from the workflow stands in frames of its own: the summary, the details, the current details.
        await _save(page, "approval-in-the-web-ui.png", down_to="#content iframe")
        await chromium.close()


async def run_demo(server: DevServer) -> str:
    """Runs the demo to its end on this server; returns its conversation's id."""
    environment = {**os.environ, "TEMPORAL_ADDRESS": server.address, "CI": "true"}
    demo = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "everturn", "demo", env=environment, stdout=asyncio.subprocess.DEVNULL
    )
    if await demo.wait():
        raise SystemExit("The demo failed: `everturn demo` says why.")
    client = await Client.connect(server.address)
    return await anext(conversation.id async for conversation in client.conversations(agent="bookkeeper"))


async def main() -> None:
    script = runpy.run_path(str(EXAMPLES / "clerk_model.py"))["script"]
    async with DevServer() as server, ScriptedModel(script) as model:
        demo = await run_demo(server)
        os.environ.update(MODEL="scripted:clerk", SCRIPTED_BASE_URL=model.base_url)
        agents = load_agents(str(EXAMPLES / "clerk.py"))
        client = await Client.connect(server.address)
        async with Worker(client, agents=agents):
            conversation = await client.start(agents[0], "Order 81 arrived broken.", id="order-81")
            await anext(event async for event in conversation.events() if event.kind == "approval_requested")
            await photograph(server.ui_url, demo)
    for other in OTHERS:
        process = await asyncio.create_subprocess_exec(sys.executable, str(DOCS / other))
        if await process.wait():
            raise SystemExit(f"{other} failed.")


if __name__ == "__main__":
    asyncio.run(main())
