"""What a protocol is: pure functions that encode a request and decode its answer, and an Assembler for streams."""

from __future__ import annotations

from typing import Any, Literal, Protocol, runtime_checkable

from everturn.http.sse import Event
from everturn.providers.base import Delta, Request
from everturn.records import Reply, Usage

ProtocolName = Literal["openai_chat", "openai_responses", "gemini", "anthropic_messages"]
"""Our own."""


class Assembler(Protocol):
    """Events of one stream in, one Reply out."""

    @property
    def done(self) -> bool:
        """Whether the stream said that it has ended."""
        ...

    @property
    def complete(self) -> bool:
        """Whether the whole reply has arrived, so that a connection that breaks now costs nothing."""
        ...

    @property
    def usage_so_far(self) -> Usage:
        """What the server has counted so far; nothing if it counts at the end."""
        ...

    def feed(self, event: Event) -> list[Delta]:
        """Reads one event, and gives the pieces of text in it."""
        ...

    def finish(self) -> Reply:
        """The reply. Raises InvalidReply if the stream stopped in the middle."""
        ...


@runtime_checkable
class WireProtocol(Protocol):
    """The contents of a protocol's module, or an object that has the same.

    Reading raises InvalidReply, or failures.ErrorInReply if the answer is an error.
    """

    def encode(self, request: Request) -> tuple[str, dict[str, Any]]:
        """The path under the base URL, and the body, which is sent as JSON."""
        ...

    def decode(self, body: object, request: Request) -> Reply:
        """The reply in the JSON of an answer that is not streamed."""
        ...

    def Assembler(self, request: Request) -> Assembler:  # noqa: N802 - it is a class
        """Reads an answer that is a stream of server-sent events."""
        ...
