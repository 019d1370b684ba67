"""Takes the pictures in docs/pictures: real runs, in the real Temporal Web UI.

    .venv/bin/python docs/make_screenshots.py

Starts a Temporal dev server, runs `everturn demo` on it (which kills a worker), lets a second conversation wait for
its approval, and photographs both with Debian's chromium over its debugging port. Look at the pictures afterwards.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import runpy
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from websockets.sync.client import ClientConnection, connect

from everturn import Client, Worker
from everturn.devserver import DevServer
from everturn.testing import ScriptedModel
from everturn.toolfiles import load_agents

DOCS = Path(__file__).parent
EXAMPLES = DOCS.parent / "examples"
PICTURES = DOCS / "pictures"

CHROMIUM = (
    "/usr/bin/chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
    "--remote-debugging-port=0",
)  # fmt: skip
WIDTH, HEIGHT, SCALE = 1440, 1500, 1.5
MARGIN = 14

CLICK = "[...document.querySelectorAll('a, button')].find(one => one.innerText.trim() == {text!r}).click()"

# What is photographed: the page beside its menu, from the title down to the lowest thing that is drawn.
FRAME = """(() => {
  const title = [...document.querySelectorAll('h1')].find(one => one.innerText.trim()).getBoundingClientRect();
  const page = document.querySelector('#content').getBoundingClientRect();
  const last = [...document.querySelectorAll(LOWEST)].map(one => one.getBoundingClientRect().bottom);
  return {left: page.left, right: page.right, top: title.top, bottom: Math.max(...last)};
})()"""


class Page:
    """One page of a browser, driven by the DevTools protocol."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._calls = 0

    def do(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._calls += 1
        self._socket.send(json.dumps({"id": self._calls, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv(timeout=30))
            if message.get("id") == self._calls:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]

    def run(self, script: str) -> Any:
        result = self.do("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{script}: {result['exceptionDetails']['exception'].get('description')}")
        return result["result"].get("value")

    def until(self, condition: str, *, seconds: float = 20) -> None:
        deadline = time.monotonic() + seconds
        while not self.run(condition):
            if time.monotonic() > deadline:
                raise TimeoutError(f"It did not come true: {condition}")
            time.sleep(0.2)

    def open(self, url: str, *, shows: str) -> None:
        self.do("Page.navigate", url=url)
        self.until(f"document.body && document.body.innerText.includes({shows!r})")

    def click(self, text: str) -> None:
        self.run(CLICK.format(text=text))

    def save(self, path: Path, *, down_to: str, and_below: int = MARGIN) -> None:
        time.sleep(2)  # what moves comes to rest
        frame = self.run(FRAME.replace("LOWEST", repr(down_to)))
        clip = {
            "x": frame["left"],
            "y": frame["top"] - MARGIN,
            "width": frame["right"] - frame["left"],
            "height": frame["bottom"] - frame["top"] + MARGIN + and_below,
            "scale": 1,
        }
        picture = self.do("Page.captureScreenshot", format="png", clip=clip)["data"]
        path.write_bytes(base64.b64decode(picture))
        print(f"{path.name}: {path.stat().st_size // 1024} KB")


@contextmanager
def browser() -> Iterator[Page]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [*CHROMIUM, f"--user-data-dir={profile}", "about:blank"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as chromium:
            try:
                assert chromium.stderr is not None
                address = next(
                    found[1] for line in chromium.stderr if (found := re.search(r"listening on ws://([^/]+)/", line))
                )
                with urlopen(f"http://{address}/json") as listed:
                    pages = [one for one in json.load(listed) if one["type"] == "page"]
                with connect(pages[0]["webSocketDebuggerUrl"], max_size=None) as socket:
                    page = Page(socket)
                    page.do(
                        "Emulation.setDeviceMetricsOverride",
                        width=WIDTH, height=HEIGHT, deviceScaleFactor=SCALE, mobile=False,
                    )  # fmt: skip
                    yield page
            finally:
                chromium.terminate()


def photograph(ui: str, demo: str) -> None:
    PICTURES.mkdir(exist_ok=True)
    conversations = f"{ui}/namespaces/default/workflows"
    with browser() as page:
        page.open(f"{conversations}/{demo}", shows="turn 6")
        page.click("Descending")
        page.until("[...document.querySelectorAll('button')].some(one => one.innerText.trim() == 'Ascending')")
        # Below the last row of the timeline come the labels of its axis.
        page.save(PICTURES / "demo-in-the-web-ui.png", down_to="#content button", and_below=90)
        page.open(f"{conversations}/order-81", shows="look_up")
        page.click("User Metadata")
        # What comes from the workflow stands in frames of its own: the summary, the details, the current details.
        page.until("document.querySelectorAll('#content iframe').length == 3")
        page.save(PICTURES / "approval-in-the-web-ui.png", down_to="#content iframe")


async def run_demo(server: DevServer) -> str:
    """Runs the demo to its end on this server; returns its conversation's id."""
    environment = {**os.environ, "TEMPORAL_ADDRESS": server.address, "CI": "true"}
    demo = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "everturn", "demo", env=environment, stdout=asyncio.subprocess.DEVNULL
    )
    if await demo.wait():
        raise SystemExit("The demo failed: `everturn demo` says why.")
    client = await Client.connect(server.address)
    return await anext(one.id async for one in client.conversations(agent="bookkeeper"))


async def main() -> None:
    script = runpy.run_path(str(EXAMPLES / "clerk_model.py"))["script"]
    async with DevServer() as server, ScriptedModel(script) as model:
        demo = await run_demo(server)
        os.environ.update(MODEL="scripted:clerk", SCRIPTED_BASE_URL=model.base_url)
        agents = load_agents(str(EXAMPLES / "clerk.py"))
        client = await Client.connect(server.address)
        async with Worker(client, agents=agents):
            conversation = await client.start("clerk", "Order 81 arrived broken.", id="order-81")
            await anext(event async for event in conversation.events() if event.kind == "approval_requested")
            await asyncio.to_thread(photograph, server.ui_url, demo)


if __name__ == "__main__":
    asyncio.run(main())
