"""Serves the agents: over standard input and output, or over streamable HTTP, statelessly."""

from __future__ import annotations

import hmac
import socket
from collections.abc import Callable
from typing import Final

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from everturn.mcp_server.server import AgentServer
from everturn.web.server import HttpServer, config_of

PATH: Final = "/mcp"


class Bearer:
    """Lets only requests with the token through."""

    def __init__(self, app: ASGIApp, *, token: str) -> None:
        self._app = app
        self._wanted = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = dict(scope.get("headers") or ()).get(b"authorization", b"")
        if scope["type"] != "http" or hmac.compare_digest(given, self._wanted):
            await self._app(scope, receive, send)
            return
        refusal = PlainTextResponse("Bearer token missing or wrong.", 401, {"www-authenticate": "Bearer"})
        await refusal(scope, receive, send)


async def serve_http(
    server: AgentServer, bound: socket.socket, *, host: str, token: str | None, started: Callable[[], None]
) -> None:
    """Serves until SIGINT or SIGTERM. `started` is called once, when the server is ready."""
    app: ASGIApp = server.mcp.streamable_http_app(streamable_http_path=PATH, stateless_http=True, host=host)
    if token:
        app = Bearer(app, token=token)
    await HttpServer(config_of(app), started).serve(sockets=[bound])
