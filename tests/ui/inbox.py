"""The inbox on a real port, and a browser that looks at it, for the tests beside."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from playwright.async_api import Browser, Page

from everturn import Client
from everturn.web.app import Inbox
from everturn.web.server import listen
from tests.support.waiting import WAIT_SECONDS


@asynccontextmanager
async def served(client: Client, *, port: int = 0, **options: Any) -> AsyncIterator[str]:
    """Serves an Inbox with these options; gives its address, without a slash at the end."""
    inbox = Inbox(client, **options)
    with listen("127.0.0.1", port) as bound:
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


@asynccontextmanager
async def looking(browser: Browser, address: str) -> AsyncIterator[Page]:
    """A page of the inbox, in a browser profile of its own; whatever it complains about fails the test."""
    context = await browser.new_context(locale="en-GB")
    page = await context.new_page()
    page.set_default_timeout(WAIT_SECONDS * 1000)
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda line: complaints.append(line.text) if "Content Security" in line.text else None)
    await page.goto(address)
    try:
        yield page
    finally:
        await context.close()
    assert complaints == []
