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

TAKEN_WITHIN_MS = 120_000
"""Whoever takes nothing of what it is sent for so long is disconnected."""

LET_GO_SECONDS = 2
"""How long a page may hold on to its connection while we stop."""


class Served(Protocol):
    """What is served. `end_streams` lets those go who hold a connection open."""

    app: ASGIApp

    def end_streams(self) -> None: ...


def listen(host: str, port: int, *, what: str = "inbox") -> socket.socket:
    """A socket at the address, before anything else is said. Raises InvalidSetting if it can't be had."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.create_server(address, family=family)
    except OSError as error:
        raise InvalidSetting(
            f"The {what} can't listen at {host}:{port}: {error.strerror or error}.",
            cure="Use another --port (0 takes any free port), or another --host.",
        ) from None
    with contextlib.suppress(AttributeError, OSError):  # Linux has it
        # A browser that stops reading would hold its connection, and what is to be sent, for as long as it lives.
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, TAKEN_WITHIN_MS)
    return bound


async def serve(served: Served, bound: socket.socket, *, started: Callable[[], None]) -> None:
    """Serves; `started` is called once, when it is ready."""
    # No access log: the login link has the token in it.
    config = uvicorn.Config(
        served.app,
        http="h11",  # which bounds a request's headers; httptools, if it is installed, does not
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=LET_GO_SECONDS,
    )
    await _GracefulServer(config, served, started).serve(sockets=[bound])


class _GracefulServer(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, served: Served, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._served = served
        self._started = started
        self._loop = asyncio.get_running_loop()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._started()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # Pages hold their connections open for as long as they live: without this, each would be waited for.
        self._loop.call_soon_threadsafe(self._served.end_streams)
        super().handle_exit(sig, frame)
