"""How a server is reached: a program of the worker's own, or HTTP, with errors that say whether a request was sent."""

from __future__ import annotations

import asyncio
import json
import os
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, TextIO, cast

import httpx2

from everturn.http.content_encoding import ACCEPTED
from everturn.logs import get_logger
from everturn.tools.mcp import bodies, limits
from everturn.tools.mcp.config import McpServer
from everturn.tools.mcp.limits import TOO_MUCH, Overflow
from everturn.tools.mcp.paced import bounded
from everturn.tools.mcp.programs import program

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

NOT_SENT = -32901
"""The code of an error of our own: nothing of the request reached the server."""
LOST = -32902
"""The same: the request was sent, and no answer came."""
HTTP_STATUS = -32903
"""The same: the server, or what is before it, refused with an HTTP status."""

SESSION_GONE = -32904
"""The same: the server has forgotten the session, and so has run nothing."""

_TAIL_LINES = 5
_LINE_CHARS = 500

_log = get_logger("everturn.mcp")


class Said:
    """What a program wrote on its standard error: logged, and its last lines kept for errors."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)

    @property
    def last(self) -> str:
        return " | ".join(self._tail)

    @asynccontextmanager
    async def pipe(self) -> AsyncIterator[TextIO]:
        read_end, write_end = os.pipe()
        reader = asyncio.StreamReader(limit=limits.PIECE_BYTES)
        source = os.fdopen(read_end, "rb", buffering=0)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), source)
        listening = asyncio.create_task(self._listen(reader))
        try:
            with os.fdopen(write_end, "w") as sink:
                yield sink
        finally:
            with suppress(asyncio.TimeoutError):  # the last words of a program that has ended
                await asyncio.wait_for(listening, 0.2)
            transport.close()

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        pace, held = limits.pace_of_errors(), b""
        while piece := await reader.read(limits.PIECE_BYTES):
            await pace.take(len(piece))
            *lines, held = (held + piece).split(b"\n")
            held = held[: limits.PIECE_BYTES]
            for line in lines[-limits.MAX_LINES_AT_ONCE :]:
                self._hear(line)
        self._hear(held)

    def _hear(self, line: bytes) -> None:
        if text := line.decode(errors="replace").strip()[:_LINE_CHARS]:
            self._tail.append(text)
            _log.debug("mcp.said", server=self._server, text=text)


@asynccontextmanager
async def streams(server: McpServer, said: Said, overflow: Overflow) -> AsyncIterator[TransportStreams]:
    """The transport, for the SDK's client. `overflow` gets what the server did if it sends too much."""
    if server.command:
        async with said.pipe() as sink, program(server, sink, overflow) as (messages, answers):
            yield bounded(messages, answers, overflow)
        return
    from mcp.client.streamable_http import streamable_http_client

    # A call may be silent for as long as its time-out lets it.
    timeout = httpx2.Timeout(30.0, read=None)
    headers = {"Accept-Encoding": ACCEPTED, **server.all_headers()}
    transport = _Telling(overflow)
    async with (
        httpx2.AsyncClient(headers=headers, timeout=timeout, transport=transport, auth=server.all_auth()) as client,
        # Events are bounded where their bytes come in.
        streamable_http_client(server.url, http_client=client, max_sse_event_size=None) as (messages, answers),
    ):
        yield bounded(messages, answers, overflow)


class _Telling(httpx2.AsyncHTTPTransport):
    """The SDK ends all requests of a connection if one of them can't be sent, and forgets the status of a refusal.
    Here, each of them is answered by itself, with an error of JSON-RPC's that says what happened."""

    def __init__(self, overflow: Overflow) -> None:
        super().__init__()
        self._overflow = overflow

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.method != "POST":
            return bodies.bounded(await super().handle_async_request(request), self._overflow)
        try:
            response = bodies.bounded(await super().handle_async_request(request), self._overflow)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            return _error(request, NOT_SENT, str(error) or type(error).__name__, status=503)
        except httpx2.TransportError as error:
            return _error(request, LOST, str(error) or type(error).__name__, status=502)
        said_so = response.headers.get("content-type", "").lower().startswith("application/json")
        if response.status_code == 404 and "mcp-session-id" in request.headers:
            await response.aclose()
            return _error(request, SESSION_GONE, "it has forgotten the session", status=404)
        if response.status_code >= 400 and response.status_code != 404 and not said_so:
            await response.aclose()
            data = {"status": response.status_code, "retry_after": response.headers.get("retry-after")}
            text = f"HTTP {response.status_code} {response.reason_phrase}".strip()
            told = _error(request, HTTP_STATUS, text, status=response.status_code, data=data)
            if "www-authenticate" in response.headers:  # says where a token is to be had
                told.headers["www-authenticate"] = response.headers["www-authenticate"]
            return told
        if said_so:
            try:
                response.request = request
                await response.aread()
            except bodies.TooMuchSent as error:
                return _error(request, TOO_MUCH, str(error), status=response.status_code)
            except httpx2.TransportError as error:
                return _error(request, LOST, str(error) or type(error).__name__, status=502)
        return response


def _error(
    request: httpx2.Request, code: int, message: str, *, status: int, data: dict[str, Any] | None = None
) -> httpx2.Response:
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message, "data": data}}
    with suppress(ValueError, httpx2.RequestNotRead):
        sent = json.loads(request.content)
        body["id"] = cast("dict[str, Any]", sent).get("id")
    return httpx2.Response(
        status, headers={"content-type": "application/json"}, content=json.dumps(body).encode(), request=request
    )
