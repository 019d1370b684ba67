"""Serves the agents: over standard input and output, or over streamable HTTP, statelessly."""

from __future__ import annotations

import hmac
import socket
from collections.abc import Callable
from typing import Final

import uvicorn
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from everturn.errors import InvalidSetting
from everturn.mcp_server.server import AgentServer
from everturn.web.auth import MIN_TOKEN_CHARS, is_loopback

PATH: Final = "/mcp"


def check_token(token: str | None, *, host: str) -> None:
    """Raises InvalidSetting for a token that is too short, and for a missing one if other machines can reach `host`."""
    if token is None and not is_loopback(host):
        raise InvalidSetting(
            f"Other machines can reach an MCP server at {host!r}, so it needs a token.",
            cure=f"Set EVERTURN_MCP_TOKEN to a secret of at least {MIN_TOKEN_CHARS} characters, such as "
            "`openssl rand -hex 24` prints; or leave --host at 127.0.0.1.",
        )
    if token is not None and (len(token) < MIN_TOKEN_CHARS or not token.isascii() or not token.isprintable()):
        raise InvalidSetting(
            f"The MCP server's token has {len(token)} characters, or some that are not printable ASCII.",
            cure=f"Use at least {MIN_TOKEN_CHARS} letters and digits, such as `openssl rand -hex 24` prints.",
        )


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
    config = uvicorn.Config(
        app, http="h11", log_config=None, access_log=False, server_header=False, timeout_graceful_shutdown=2
    )
    await _McpHttpServer(config, started).serve(sockets=[bound])


class _McpHttpServer(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._started = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._started()
