"""What to do about an MCP server that can't be greeted."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from everturn.errors import InvalidTool
from everturn.tools.mcp.config import McpServer
from everturn.tools.mcp.error_codes import HTTP_STATUS, NOT_SENT, status_of

PROBE_SECONDS: Final = 5.0

OLD_TRANSPORT: Final = "it speaks the old transport, HTTP+SSE (of 2024-11-05), which everturn does not"
OLD_CURE: Final = (
    "Use the server's address for streamable HTTP, which is often /mcp, or a bridge: "
    "McpServer(command=['npx', '-y', 'mcp-remote', URL, '--transport', 'sse-only'])."
)
_TOKEN_CURE: Final = "Check the server's token: headers_env=, oauth= or auth=."
_ADDRESS_CURE: Final = (
    "Check the address: streamable HTTP is often at /mcp. One that ends with /sse is often that of the old HTTP+SSE "
    "transport, which everturn does not speak."
)
_CURES: Final = {401: _TOKEN_CURE, 403: _TOKEN_CURE, 404: _ADDRESS_CURE, 405: _ADDRESS_CURE}

_NOT_THE_GREETING: Final = frozenset({*_CURES, 407, 429, 503})
"""HTTP statuses that another greeting gets, too."""


@dataclass(frozen=True)
class GreetingProblem:
    words: str = ""
    """What is known beyond the error itself."""
    cure: str = ""


def may_be_the_reason(error: BaseException) -> bool:
    """Whether a server that did not open may do so with the handshake of before 2026."""
    if isinstance(error, OSError | ValueError | InvalidTool):
        return False
    code = getattr(error, "code", None)
    return code != NOT_SENT and not (code == HTTP_STATUS and status_of(error) in _NOT_THE_GREETING)


async def problem_of(server: McpServer, error: BaseException) -> GreetingProblem:
    if not server.url or getattr(error, "code", None) != HTTP_STATUS:
        return GreetingProblem()
    if status_of(error) in (400, 404, 405) and await _speaks_the_old_transport(server):
        return GreetingProblem(OLD_TRANSPORT, OLD_CURE)
    return GreetingProblem(cure=_CURES.get(status_of(error), ""))


async def _speaks_the_old_transport(server: McpServer) -> bool:
    """As the protocol advises clients to find it out: a GET opens a stream whose first event is `endpoint`."""
    import httpx2

    with suppress(Exception):  # the network's, and the user's in headers
        headers = {**server.all_headers(), "Accept": "text/event-stream"}
        async with (
            asyncio.timeout(PROBE_SECONDS),
            httpx2.AsyncClient(headers=headers) as client,
            client.stream("GET", server.url) as response,
        ):
            begin = b""
            if response.headers.get("content-type", "").lower().startswith("text/event-stream"):
                async for piece in response.aiter_bytes():
                    begin += piece
                    if b"\n" in begin or len(begin) > 1000:
                        return begin.lstrip().startswith(b"event: endpoint") or b"event:endpoint" in begin
    return False
