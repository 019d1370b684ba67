"""Bodies of answers over HTTP: decompressed in pieces, and read no further than we take."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx2

from everturn.http.content_encoding import UnknownEncoding, UnreadableBody, decoder_of
from everturn.tools.mcp import limits
from everturn.tools.mcp.error_codes import events_told_apart
from everturn.tools.mcp.limits import Overflow, TooMuch

_ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")
"""After an event of a stream."""

_LONGEST_END = max(map(len, _ENDS))


class TooMuchSent(httpx2.ReadError):
    """The body is more than we take."""


def bound_body(response: httpx2.Response, overflow: Overflow, *, request_id: Any = None) -> httpx2.Response:
    """The same answer, with a body that raises TooMuchSent, and ReadError if it can't be decompressed. A stream's event
    that is too long ends the connection by `overflow`. `request_id`: of the request that it answers."""
    headers = httpx2.Headers([header for header in response.headers.raw if header[0].lower() not in _OF_THE_ENCODING])
    body = _Body(response, overflow, request_id)
    return httpx2.Response(response.status_code, headers=headers, stream=body, extensions=response.extensions)


_OF_THE_ENCODING = (b"content-encoding", b"content-length")


class _Body(httpx2.AsyncByteStream):
    def __init__(self, response: httpx2.Response, overflow: Overflow, request_id: Any) -> None:
        self._response = response
        self._overflow = overflow
        self._request_id = request_id

    async def aclose(self) -> None:
        await self._response.aclose()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        kind = self._response.headers.get("content-type", "").lower()
        try:
            if kind.startswith("text/event-stream"):
                async for piece in self._read_events():
                    yield piece
            else:
                yield await self._read_whole()
        except TooMuch as error:
            raise TooMuchSent(str(error)) from None

    async def _read_whole(self) -> bytes:
        received = bytearray()
        async for piece in self._read_pieces():
            received += piece
            if len(received) > limits.MAX_MESSAGE_BYTES:
                raise limits.too_long()
        limits.check_values(received)
        return bytes(received)

    async def _read_events(self) -> AsyncIterator[bytes]:
        """Only whole events, except for the end."""
        unread = bytearray()
        async for piece in self._read_pieces():
            seen = max(0, len(unread) - _LONGEST_END)
            unread += piece
            ends = [position + len(sign) for sign in _ENDS if (position := unread.rfind(sign, seen)) >= 0]
            end = max(ends, default=0)
            try:
                if len(unread) - end > limits.MAX_MESSAGE_BYTES:
                    raise limits.too_long()
                if end:
                    limits.check_values(unread[:end])
            except TooMuch as error:
                self._overflow.report(error)
                raise
            if end:
                yield events_told_apart(bytes(unread[:end]), request_id=self._request_id)
                del unread[:end]
        yield bytes(unread)

    async def _read_pieces(self) -> AsyncIterator[bytes]:
        _, pace = limits.new_paces()
        try:
            decoder = decoder_of(self._response.headers)
            async for raw in self._response.stream:  # type: ignore[union-attr]
                for piece in decoder.decode_pieces(raw):
                    await pace.wait_for(len(piece))
                    yield piece
        except (UnknownEncoding, UnreadableBody) as error:
            raise httpx2.ReadError(f"its answer can't be read: {error}") from None
