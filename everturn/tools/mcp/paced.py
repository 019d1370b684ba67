"""The messages of a connection, no faster than a worker can take them beside its other work."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from everturn.tools.mcp import invalid_lists, limits
from everturn.tools.mcp.limits import Overflow, TooMuch

if TYPE_CHECKING:
    from mcp.client._transport import ReadStream, TransportStreams, WriteStream
    from mcp.shared.message import SessionMessage


def bound_streams(
    messages: ReadStream[SessionMessage | Exception], answers: WriteStream[SessionMessage], overflow: Overflow
) -> TransportStreams:
    """The same streams, that end if the server leaves too many requests open: `overflow` then says why."""
    open_requests: set[str] = set()
    return _Messages(messages, open_requests, overflow), _Answers(answers, open_requests)


def _mend_tool_list(received: SessionMessage) -> None:
    from mcp import types

    if isinstance(received.message, types.JSONRPCResponse):
        invalid_lists.mend(received.message.result)


class _ClosingStream:
    """Ends with the stream that it stands before."""

    _stream: ReadStream[Any] | WriteStream[Any]

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class _Messages(_ClosingStream):
    def __init__(
        self, stream: ReadStream[SessionMessage | Exception], open_requests: set[str], overflow: Overflow
    ) -> None:
        self._stream: ReadStream[SessionMessage | Exception] = stream
        self._open = open_requests
        self._overflow = overflow
        self._pace, _ = limits.new_paces()

    @property
    def last_context(self) -> Any:
        """The sender's, which the SDK looks for."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        """Raises anyio.EndOfStream, also for a connection that was ended."""
        import anyio

        while True:
            message = await self._stream.receive()
            await self._pace.wait_for(1)
            if isinstance(message, Exception):
                return message
            _mend_tool_list(message)
            try:
                if self._is_new(message):
                    return message
            except TooMuch as error:
                self._overflow.report(error)
                raise anyio.EndOfStream from None

    def _is_new(self, message: SessionMessage) -> bool:
        """Whether it is not a request that is open already. Raises TooMuch."""
        from mcp import types

        if (
            isinstance(message.message, types.JSONRPCNotification)
            and message.message.method == "notifications/cancelled"
        ):
            self._open.discard(str((message.message.params or {}).get("requestId")))
        if not isinstance(message.message, types.JSONRPCRequest):
            return True
        if str(message.message.id) in self._open:
            return False
        self._open.add(str(message.message.id))
        if len(self._open) > limits.MAX_OPEN_REQUESTS:
            most = f"it sent more than {limits.MAX_OPEN_REQUESTS:,} requests before it took our answers"
            raise TooMuch(f"{most}, which is the limit. Have it read what it is sent")
        return True

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        import anyio

        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None


class _Answers(_ClosingStream):
    def __init__(self, stream: WriteStream[SessionMessage], open_requests: set[str]) -> None:
        self._stream: WriteStream[SessionMessage] = stream
        self._open = open_requests

    async def send(self, item: SessionMessage, /) -> None:
        from mcp import types

        await self._stream.send(item)
        if isinstance(item.message, types.JSONRPCResponse | types.JSONRPCError):
            self._open.discard(str(item.message.id))
