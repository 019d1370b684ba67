"""Pages of other people's front ends, in Node; and the application that serves them, in this process or another."""

from __future__ import annotations

import asyncio
import atexit
import itertools
import json
import shutil
import subprocess
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.types import ASGIApp

from everturn.web.server import open_socket
from tests.support.waiting import WAIT_SECONDS, eventually

FOLDER = Path(__file__).parents[1] / "frontends"
NODE = shutil.which("node") or ""

needs_node = [
    pytest.mark.skipif(not NODE, reason="node is not installed"),
    pytest.mark.skipif(
        not all((FOLDER / "node_modules" / one).exists() for one in ("@ag-ui", "typescript")),
        reason="the front ends are not there: run `npm install --no-save` in tests/frontends",
    ),
]

State = dict[str, Any]

PATIENCE_SECONDS = 150.0
"""Processes start one after the other: Node, the web application, workers. On a full machine, that takes minutes."""


class _FrontEnd:
    """A process of Node with all the pages of one program: see frontends/pages.mjs. It ends with this one."""

    def __init__(self, program: str) -> None:
        self._process = subprocess.Popen(
            [NODE, program],
            cwd=FOLDER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self.pages: dict[int, Page] = {}
        self.log = ""
        self._listening = threading.Thread(target=self._listen, daemon=True)
        self._listening.start()
        atexit.register(self.end)

    def _listen(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            if not line.startswith('{"page":'):
                self.log += line
                continue
            about = json.loads(line)
            if shown := self.pages.get(about["page"]):  # else it is closed
                shown.state = about.get("state", shown.state)
                shown.failed += about.get("failed", "")

    def tell(self, page: int, does: str, **what: Any) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps({"page": page, "does": does, **what}) + "\n")
        self._process.stdin.flush()

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._listening.join()
        assert self._process.stdin
        assert self._process.stdout
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.stdout.close()


@cache
def _front_ends() -> dict[str, _FrontEnd]:
    return {}


_numbers = itertools.count(1)


class Page:
    """What it shows, as the program beside it says; and what its person does."""

    def __init__(self, front_end: _FrontEnd, number: int) -> None:
        self._front_end, self._number = front_end, number
        self.state: State = {}
        self.failed = ""

    def do(self, does: str, **what: Any) -> None:
        self._front_end.tell(self._number, does, **what)

    async def shows(self, condition: Callable[[State], Any], *, what: str) -> State:
        """The page's state, as soon as it is so."""

        def shown() -> State | None:
            assert self._front_end.runs, "Node has ended"
            assert not self.failed, self.failed
            return self.state if self.state and condition(self.state) else None

        try:
            return await eventually(shown, seconds=PATIENCE_SECONDS, what=what)
        except AssertionError as error:
            log = self._front_end.log
            raise AssertionError(f"{error}: {what}\n{json.dumps(self.state, indent=1)}\n{log}") from None


@asynccontextmanager
async def page(program: str, address: str, chat: str, **headers: str) -> AsyncIterator[Page]:
    """Of a front end's own process, which all pages of it share. Who leaves the block closes the page."""
    front_ends = _front_ends()
    if program not in front_ends or not front_ends[program].runs:
        front_ends[program] = _FrontEnd(program)
    front_end, number = front_ends[program], next(_numbers)
    shown = front_end.pages[number] = Page(front_end, number)
    shown.do("open", address=address, chat=chat, headers=headers)
    try:
        yield shown
    finally:
        if front_end.runs:
            shown.do("close")
        del front_end.pages[number]


@asynccontextmanager
async def serving(app: ASGIApp, *, port: int = 0) -> AsyncIterator[str]:
    """The application on loopback; its address, without a slash at the end."""
    with open_socket("127.0.0.1", port) as bound:
        config = uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=1, lifespan="off")
        server = uvicorn.Server(config)
        running = asyncio.create_task(server.serve(sockets=[bound]))
        try:
            yield f"http://127.0.0.1:{bound.getsockname()[1]}"
        finally:
            server.should_exit = True
            await asyncio.wait_for(running, WAIT_SECONDS)
