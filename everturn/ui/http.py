"""Server-sent events with heartbeats, and errors in plain words: the HTTP part that both protocols share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, aclosing
from typing import Any, Final

from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from temporalio.service import RPCError

from everturn.errors import AlreadyStarted, Ended, EverturnError, NotFound, Refused, Unreachable
from everturn.logs import get_logger
from everturn.text.json_text import json_text
from everturn.validation.explaining import explain

BEAT_SECONDS: Final = 10.0
"""A comment is sent at least this often: proxies cut silent connections, and each side notices if the other is gone."""

HEADERS: Final = {
    "cache-control": "no-cache, no-transform",
    # Otherwise proxies such as nginx would buffer the stream.
    "x-accel-buffering": "no",
}

_STATUS: Final[dict[type[Exception], int]] = {
    NotFound: 404,
    Refused: 422,
    Ended: 409,
    AlreadyStarted: 409,
    Unreachable: 503,
}

_LINE_ENDS: Final = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}
"""Unicode's line ends. They end no line of server-sent events, but some readers split lines there all the same."""

_log = get_logger("everturn.ui")


def encode_event(chunk: Mapping[str, Any]) -> bytes:
    """One event. Half of a surrogate pair can't be written as UTF-8, and becomes a question mark."""
    text = json_text(chunk, compact=True).translate(_LINE_ENDS)
    return f"data: {text}\n\n".encode(errors="replace")


def event_stream(
    chunks: AsyncGenerator[Mapping[str, Any]], *, headers: Mapping[str, str], last: bytes = b""
) -> Response:
    """The response that sends these chunks, then `last`. If the page disconnects, only this response ends."""
    return StreamingResponse(_with_beats(chunks, last), media_type="text/event-stream", headers={**HEADERS, **headers})


async def _with_beats(chunks: AsyncGenerator[Mapping[str, Any]], last_chunk: bytes) -> AsyncIterator[bytes]:
    coming: asyncio.Future[Any] | None = None
    async with aclosing(chunks):
        try:
            yield b": open\n\n"
            while True:
                coming = coming or asyncio.ensure_future(anext(chunks, None))
                await asyncio.wait({coming}, timeout=BEAT_SECONDS)
                if not coming.done():
                    yield b": beat\n\n"
                    continue
                chunk = coming.result()
                coming = None
                if chunk is None:
                    break
                yield encode_event(chunk)
            yield last_chunk
        finally:
            if coming is not None:
                coming.cancel()
                await asyncio.gather(coming, return_exceptions=True)


# ---------------------------------------------------------------- what went wrong


async def or_failed(
    chunks: AsyncIterable[dict[str, Any]], fail: Callable[[str], Iterable[dict[str, Any]]], stack: AsyncExitStack
) -> AsyncGenerator[dict[str, Any]]:
    """The chunks. An error among them becomes what `fail` makes of it, since the headers are already sent. Closes
    `stack` at the end."""
    async with stack:
        try:
            async for chunk in chunks:
                yield chunk
        except Exception as error:  # noqa: BLE001 - any error is reported in the stream
            for chunk in fail(told_to_page(error)):
                yield chunk


def told_to_page(error: Exception) -> str:
    """What a page may read of an error: not the cure, which is for those who run the service and may name internals."""
    if isinstance(error, EverturnError):
        return error.message
    _log.error("ui.failed", exc_info=error)
    return "Something went wrong. Try again."


async def as_text(_: Request, error: Exception) -> Response:
    """The error as plain text: pages show the body as it is."""
    match error:
        case HTTPException():
            return PlainTextResponse(error.detail, error.status_code, error.headers)
        case ValidationError():
            return PlainTextResponse(f"The request can't be read: {explain(error)}.", 400)
        case RecursionError():
            return PlainTextResponse("The request is too deeply nested.", 400)
        case ClientDisconnect():
            return PlainTextResponse("", 400)  # nobody reads it: the page disconnected early
        case RPCError():
            return PlainTextResponse(f"Temporal said no: {error.message}.", 503)
        case _:
            status = next((code for kind, code in _STATUS.items() if isinstance(error, kind)), 400)
            return PlainTextResponse(told_to_page(error), status)


ERRORS: Final = dict.fromkeys(
    (HTTPException, ValidationError, RecursionError, ClientDisconnect, EverturnError, RPCError), as_text
)
