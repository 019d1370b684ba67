"""The inbox on a real port, for the tests beside."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn

from everturn import Client
from everturn.web.app import Inbox
from everturn.web.server import listen


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
