"""A connection to one of our HTTP servers: its requests have to arrive in time, and there are not too many of it.

Uvicorn lets a client take any time for a request, and holds as many connections as come. So anybody who can reach the
port could lock everybody out before a token is asked for.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final, Literal

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from everturn.system.open_files import files_to_spare

HEAD_SECONDS: Final = 5.0
"""The longest time until the head of a request has arrived, from the connection's beginning or the last answer."""

BODY_SECONDS: Final = 30.0
"""The longest time from then until its body has."""

MOST_CONNECTIONS: Final = 2000
"""The most connections at a time, if the process may open so many files."""


class BoundedConnection(H11Protocol):
    _awaits: Literal["head", "body"] | None = None
    """What the client has still to send."""
    _since = 0.0
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch_state()
        if len(self.connections) >= files_to_spare(MOST_CONNECTIONS):
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        self._await_part(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch_state()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch_state()

    def _watch_state(self) -> None:
        if self.transport.is_closing():
            self._await_part(None)
        elif self.conn.their_state is h11.IDLE:
            self._await_part("head")
        elif self.conn.their_state is h11.SEND_BODY:
            self._await_part("body")
        else:
            self._await_part(None)

    def _await_part(self, what: Literal["head", "body"] | None) -> None:
        """Sets the timer. It is not set again for more of the same: a client may not send byte by byte."""
        if what == self._awaits:
            return
        if self._timer:
            self._timer.cancel()
        self._awaits = what
        self._since = time.monotonic()
        self._timer = None
        if what:
            self._timer = self.loop.call_later(HEAD_SECONDS if what == "head" else BODY_SECONDS, self.transport.abort)

    def _make_room(self) -> None:
        """Closes the connection that has waited longest for a request; this one if each of the others has one."""
        other_connections = [
            connection
            for connection in self.connections
            if isinstance(connection, BoundedConnection) and connection is not self
        ]
        idle = (
            connection
            for connection in other_connections
            if connection._awaits == "head" and not connection.transport.is_closing()
        )
        min(idle, key=lambda connection: connection._since, default=self).transport.abort()
