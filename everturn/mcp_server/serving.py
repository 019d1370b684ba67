"""Serves the agents: over standard input and output, or over streamable HTTP, statelessly."""

from __future__ import annotations

import hmac
import socket
from collections.abc import Callable, Collection
from typing import Final
from urllib.parse import urlsplit

from mcp.server.transport_security import TransportSecuritySettings
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from everturn.mcp_server.server import AgentServer
from everturn.web.auth import host_name, is_loopback
from everturn.web.server import HttpServer, config_of

PATH: Final = "/mcp"


class Bearer:
    """Lets only requests with the token through."""

    def __init__(self, app: ASGIApp, *, token: str) -> None:
        self._app = app
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scheme, _, token = dict(scope.get("headers") or ()).get(b"authorization", b"").partition(b" ")
        # The scheme is read in any case (RFC 9110, 11.1).
        is_known = hmac.compare_digest(token.strip(), self._token) and scheme.lower() == b"bearer"
        if scope["type"] != "http" or is_known:
            await self._app(scope, receive, send)
            return
        refusal = PlainTextResponse("Bearer token missing or wrong.", 401, {"www-authenticate": "Bearer"})
        await refusal(scope, receive, send)


class RequestGuard:
    """Refuses what a page of another site may send (421, 403), and what a server without sessions has not: streams to
    listen at, or to take up again (405).

    A page in a browser on this machine can't forge the Host header (a rebound name is not localhost) nor Origin, and
    can't know a token. So without a token, only this machine's names count, and those of `hosts`. With a token, every
    name counts, as behind a proxy, unless `hosts` says which.
    """

    def __init__(self, app: ASGIApp, *, hosts: Collection[str] = (), has_token: bool = False) -> None:
        self._app = app
        self._hosts = frozenset(host.lower() for host in hosts)
        self._any_host = has_token and not hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refuse_request(Request(scope)) if scope["type"] == "http" else None
        await (refusal or self._app)(scope, receive, send)

    def _refuse_request(self, request: Request) -> Response | None:
        host = request.headers.get("host", "")
        origin = request.headers.get("origin")
        if not self._is_ours(host):
            text = f"This server is not at {host[:100]!r}. EVERTURN_MCP_HOSTS names the hosts that it is at."
            return PlainTextResponse(text, 421)
        if origin is not None and not self._is_ours(_place_of(origin)):
            return PlainTextResponse("The request comes from another site's page.", 403)
        if request.url.path == PATH and request.method != "POST":
            return PlainTextResponse("Send each message by POST.", 405, {"allow": "POST"})
        return None

    def _is_ours(self, host: str) -> bool:
        name = host_name(host).lower()
        return self._any_host or is_loopback(name) or not self._hosts.isdisjoint((name, host.lower()))


def _place_of(origin: str) -> str:
    """An Origin header without its scheme; empty if it is not an address, such as `null`."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def app_of(server: AgentServer, *, token: str | None, hosts: Collection[str] = ()) -> ASGIApp:
    """The server, with all that stands before it."""
    security = TransportSecuritySettings(enable_dns_rebinding_protection=False)  # the door's part
    app: ASGIApp = server.mcp.streamable_http_app(
        streamable_http_path=PATH, stateless_http=True, transport_security=security
    )
    if token:
        app = Bearer(app, token=token)
    return RequestGuard(app, hosts=hosts, has_token=token is not None)


async def serve_http(
    server: AgentServer,
    bound: socket.socket,
    *,
    token: str | None,
    hosts: Collection[str] = (),
    started: Callable[[], None],
) -> None:
    """Serves until SIGINT or SIGTERM. `started` is called once, when the server is ready."""
    await HttpServer(config_of(app_of(server, token=token, hosts=hosts)), started).serve(sockets=[bound])
