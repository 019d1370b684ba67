"""Pages of other people's front ends, in Node; and the application that serves them, in this process or another."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
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


class Page:
    """What it shows, as the program beside it says; and what its person does."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.states: list[State] = []
        self.log = ""

    @property
    def state(self) -> State:
        return self.states[-1] if self.states else {}

    async def listen(self) -> None:
        assert self._process.stdout
        while line := await self._process.stdout.readline():
            if line.startswith(b"{"):
                self.states.append(json.loads(line))
            else:
                self.log += line.decode()

    def do(self, does: str, **what: Any) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps({"does": does, **what}).encode() + b"\n")

    async def shows(self, condition: Callable[[State], Any], *, what: str) -> State:
        """The page's state, as soon as it is so."""
        try:
            shown = lambda: self.state if self.states and condition(self.state) else None  # noqa: E731
            return await eventually(shown, seconds=PATIENCE_SECONDS, what=what)
        except AssertionError:
            raise AssertionError(f"not so: {what}\n{json.dumps(self.state, indent=1)}\n{self.log}") from None


@asynccontextmanager
async def page(program: str, address: str, chat: str, **headers: str) -> AsyncIterator[Page]:
    process = await asyncio.create_subprocess_exec(
        NODE, program, address, chat, json.dumps(headers),
        cwd=FOLDER, limit=50_000_000,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    shown = Page(process)
    listening = asyncio.create_task(shown.listen())
    try:
        yield shown
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await listening


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
