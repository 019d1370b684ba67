"""The inbox on a real port, and a browser that looks at it, for the tests beside."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from playwright.async_api import ConsoleMessage, Page

from everturn import Client
from everturn.devserver import DevServer
from everturn.web.app import Inbox
from everturn.web.server import open_socket
from tests.support.waiting import WAIT_SECONDS


@asynccontextmanager
async def served(client: Client, *, port: int = 0, **options: Any) -> AsyncIterator[str]:
    """Serves an Inbox with these options; gives its address, without a slash at the end."""
    inbox = Inbox(client, **options)
    with open_socket("127.0.0.1", port) as bound:
        server = uvicorn.Server(
            uvicorn.Config(inbox.app, log_config=None, access_log=False, timeout_graceful_shutdown=1)
        )
        serving = asyncio.create_task(server.serve(sockets=[bound]))
        try:
            yield f"http://127.0.0.1:{bound.getsockname()[1]}"
        finally:
            inbox.end_streams()
            server.should_exit = True
            await serving


def everturn_web(server: DevServer, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    """The command as a process. It has still to say its address."""
    return subprocess.Popen(
        [sys.executable, "-m", "everturn", "web", "--port", "0", *arguments],
        env={**os.environ, "TEMPORAL_ADDRESS": server.address, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


async def address_of(web: subprocess.Popen[str]) -> str:
    assert web.stderr
    said = ""
    while not (found := re.search(r"http://127\.0\.0\.1:\d+/", said)):
        line = await asyncio.to_thread(web.stderr.readline)
        assert line, f"it ended, and said {said!r}"
        said += line
    return found[0]


@asynccontextmanager
async def looking(page: Page, address: str) -> AsyncIterator[Page]:
    """The inbox in this tab, which forgets it afterwards; whatever it complains about fails the test."""
    page.set_default_timeout(WAIT_SECONDS * 1000)
    complaints: list[str] = []

    def hear(complaint: object) -> None:
        if not isinstance(complaint, ConsoleMessage):
            complaints.append(str(complaint))
        elif "Content Security" in complaint.text:
            complaints.append(complaint.text)

    for kind in ("pageerror", "console"):
        page.on(kind, hear)  # type: ignore[call-overload]
    await page.goto(address)
    try:
        yield page
    finally:
        await page.evaluate("localStorage.clear(); sessionStorage.clear()")
        for kind in ("pageerror", "console"):
            page.remove_listener(kind, hear)
        await page.context.clear_cookies()
        await page.goto("about:blank")
    assert complaints == []
