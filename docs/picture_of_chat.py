"""Takes the picture of `everturn chat`: a real terminal, what it shows drawn by rich, photographed by Chromium.

    .venv/bin/python docs/picture_of_chat.py

Needs tmux and Debian's chromium. Look at the picture afterwards.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import sync_playwright
from rich.console import Console
from rich.text import Text

from everturn.testing import ScriptedModel, call, say

DOCS = Path(__file__).parent
ROOT = DOCS.parent
sys.path.append(str(ROOT))

from tests.ui.tmux import Terminal  # noqa: E402 - it is not installed, but lies beside us

CHROMIUM = "/usr/bin/chromium"
COLUMNS, ROWS = 96, 40
SCRIPT = [
    [say("I look the order up first."), call("look_up", {"order_id": "81"})],
    [say("A desk lamp for 34.90 EUR. I refund it in full."), call("refund", {"order_id": "81", "cents": 3490})],
    "I am sorry about the lamp. The 34.90 EUR are on their way back to you, and will be on your account by Tuesday.",
    call("look_up", {"order_id": "82"}),
    [say("The same lamp, and the same price."), call("refund", {"order_id": "82", "cents": 3490})],
]


def take(address: str, picture: Path) -> None:
    """Holds a chat on the Temporal server at this address, and saves what its terminal shows as a PNG."""
    with tempfile.TemporaryDirectory() as folder, ScriptedModel(SCRIPT) as model:
        environment = _environment(Path(folder), address, model.base_url)
        with _worker(environment, Path(folder)), Terminal(Path(folder), environment, columns=COLUMNS, rows=ROWS) as it:
            it.run("everturn", "chat", "--agent", "clerk", "--id", "orders-81-and-82")
            it.until("▸")
            it.type("Order 81 arrived broken.")
            it.until("approve refund?")
            it.type("y")
            it.until("Tuesday", lambda shown: shown.rstrip().endswith("▸"))
            it.type("And order 82 too, I am afraid.")
            it.until(lambda shown: shown.rstrip().endswith("[e]dit:"))
            _save(it.shown(colours=True), picture)


def _environment(folder: Path, address: str, model: str) -> dict[str, str]:
    command = folder / "everturn"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m everturn "$@"\n')
    command.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if name not in {"CI", "NO_COLOR", "TMUX"}}
    return {
        **kept,
        "PATH": f"{folder}:{os.environ['PATH']}",
        "USER": "ann",
        "LOGNAME": "ann",
        "XDG_STATE_HOME": str(folder),
        "TEMPORAL_ADDRESS": address,
        "EVERTURN_TASK_QUEUE": "picture-of-chat",
        "MODEL": "scripted:clerk",
        "SCRIPTED_BASE_URL": model,
    }


@contextmanager
def _worker(environment: dict[str, str], folder: Path) -> Iterator[None]:
    log = folder / "worker.log"
    command = [sys.executable, "-m", "everturn", "worker", "--agents", str(ROOT / "examples/clerk.py")]
    with log.open("w") as written, subprocess.Popen(command, env=environment, stderr=written) as worker:
        try:
            doctor = [sys.executable, "-m", "everturn", "doctor", "--json"]
            while '"workers", "state": "ok"' not in " ".join(
                subprocess.run(doctor, env=environment, capture_output=True, text=True, check=False).stdout.split()
            ):
                if worker.poll() is not None:
                    raise RuntimeError(log.read_text())
            yield
        finally:
            worker.kill()


def _save(shown: str, picture: Path) -> None:
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(shown.rstrip()))
    drawing = console.export_svg(title="everturn chat")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1240, "height": 1000}, device_scale_factor=1.5)
        page.set_content(f"<body style='margin: 0'>{drawing}</body>")
        page.locator("svg").screenshot(path=picture, omit_background=True)
        browser.close()
    print(f"{picture.name}: {picture.stat().st_size // 1024} KB")


if __name__ == "__main__":
    import asyncio

    from everturn.devserver import DevServer

    async def main() -> None:
        async with DevServer() as server:
            await asyncio.to_thread(take, server.address, DOCS / "pictures" / "chat.png")

    asyncio.run(main())
