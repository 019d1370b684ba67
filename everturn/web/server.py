"""Serves the inbox, or the codec server, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from types import FrameType
from typing import Protocol

import uvicorn
from starlette.types import ASGIApp

from everturn.errors import InvalidSetting
from everturn.web.connections import BoundedConnection

TAKEN_WITHIN_MS = 120_000
"""A client that reads nothing of what it is sent for this long is disconnected."""

LET_GO_SECONDS = 2
"""How long pages may keep their connections open after the server was told to stop."""


class ServedApp(Protocol):
    """What `serve` can serve. `end_streams` ends all open streams."""

    app: ASGIApp

    def end_streams(self) -> None: ...


def open_socket(host: str, port: int, *, what: str = "inbox") -> socket.socket:
    """A socket that listens at the address, opened before anything is printed. Raises InvalidSetting if it can't be."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.create_server(address, family=family)
    except OSError as error:
        raise InvalidSetting(
            f"The {what} can't listen at {host}:{port}: {error.strerror or error}.",
            cure="Use another --port (0 takes any free port), or another --host.",
        ) from None
    with contextlib.suppress(AttributeError, OSError):  # only Linux has this option
        # Otherwise a browser that stops reading would keep its connection, and the unsent data, for ever.
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, TAKEN_WITHIN_MS)
    return bound


async def serve(served: ServedApp, bound: socket.socket, *, started: Callable[[], None]) -> None:
    """Serves until a signal stops it. Calls `started` once, when it is ready."""
    await _GracefulServer(config_of(served.app), served, started).serve(sockets=[bound])


def config_of(app: ASGIApp) -> uvicorn.Config:
    """How each HTTP server of ours is set up."""
    # No access log: the login link has the token in it.
    return uvicorn.Config(
        app,
        http=BoundedConnection,  # with h11, which limits the size of headers; httptools does not
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=LET_GO_SECONDS,
    )


class HttpServer(uvicorn.Server):
    """Calls `started` once, when it is ready."""

    def __init__(self, config: uvicorn.Config, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._started = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._started()


class _GracefulServer(HttpServer):
    def __init__(self, config: uvicorn.Config, served: ServedApp, started: Callable[[], None]) -> None:
        super().__init__(config, started)
        self._served = served
        self._loop = asyncio.get_running_loop()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # Pages keep their connections open for as long as they live: the shutdown would wait for each of them.
        self._loop.call_soon_threadsafe(self._served.end_streams)
        super().handle_exit(sig, frame)
