"""What follows if a call of an MCP server fails: it is made again, its outcome is unknown, or the model is told."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from everturn.errors import OutcomeUnknown, Retry, ToolFailed
from everturn.sizes import MAX_ERROR_BYTES
from everturn.text.shortening import shortened
from everturn.text.utf8 import mend
from everturn.tools.mcp import error_codes
from everturn.tools.mcp.config import McpServer
from everturn.tools.mcp.connections import (
    ConnectionLost,
    NotConnected,
    RunningCall,
    ServerConnection,
    ServerConnections,
)
from everturn.tools.mcp.questions import Answers
from everturn.tools.mcp.tasks import Memory

if TYPE_CHECKING:
    from mcp import MCPError


_LATER = (408, 425, 429, 503)
"""HTTP statuses that say that the server has not begun with the request, often from a proxy. Not 502 and 504: a proxy
says so, too, of a server that was lost, or is slow, in the middle of it (RFC 9110, 15.6.3 and 15.6.5)."""

CHECK_SECONDS = 10.0
"""How long a server may take to say whether it knows a session."""


@dataclass(frozen=True)
class NothingHasRun:
    """Nothing has run, and the call may be made later."""

    cause: str
    is_reached: bool = False
    """The server, or what is before it, has answered."""
    seconds: float = 0.0
    """How long it asks to wait."""


class CallFailures:
    """The failures of one try of a call. `once`: it may run only once, so that a lost answer leaves its outcome
    unknown."""

    def __init__(self, connections: ServerConnections, server: McpServer, memory: Memory, *, once: bool) -> None:
        self._connections = connections
        self._server = server
        self._memory = memory
        self._once = once
        self._begun_anew = False

    async def judge_error(
        self, connection: ServerConnection, error: MCPError, answers: Answers
    ) -> NothingHasRun | None:
        """If nothing has run: when to try again, or None for at once. Raises the error otherwise."""
        from mcp import types

        code = error.code
        begun_anew = self._begun_anew
        match code:
            case error_codes.TOO_MUCH:
                raise self.unread_result_error(error)
            case error_codes.NOT_SENT:
                return NothingHasRun(error.message)
            case error_codes.CONNECTION_CLOSED | error_codes.LOST:
                await self._connections.renew(connection)
                raise self.lost_error(error.message)
            case error_codes.UNREADABLE | error_codes.PARSE_ERROR:
                raise self.unreadable_error(error)
            case error_codes.HTTP_STATUS:
                return await self._judge_refusal(connection, error)
            case error_codes.SESSION_GONE if not begun_anew:
                self._begun_anew = True
                await self._connections.renew(connection)
                return None
            case types.HEADER_MISMATCH if not begun_anew:
                self._begun_anew = True
                await (await connection.opened_session()).list_tools()
                return None
        if not begun_anew and answers.state is not None:
            # What it gave us to remember means nothing to it any more. It asks again, and finds what was answered.
            self._begun_anew = True
            answers.state = None
            answers.open = {}
            return None
        if await self.is_forgotten(connection, error):
            return None
        raise ToolFailed(f"{self._server.label} refused the call: {error.message}")

    async def _judge_refusal(self, connection: ServerConnection, error: MCPError) -> NothingHasRun | None:
        """As `judge_error`, for a refusal with an HTTP status."""
        status = error_codes.status_of(error)
        if status in _LATER:
            return NothingHasRun(error.message, is_reached=True, seconds=error.data.get("retry_after") or 0.0)
        if status < 500 and await self.is_forgotten(connection, error):
            return None
        await self._connections.renew(connection)  # its headers may have changed; and it may not know the session
        if status >= 500:
            raise self.lost_error(error.message)
        raise ToolFailed(f"{self._server.label} refused the call: {error.message}")

    async def is_forgotten(self, connection: ServerConnection, error: MCPError) -> bool:
        """Whether a server that was restarted does not know the session any more, so that it has not begun with the
        call. By the protocol, it says so with 404. Others say it with 400 and any words (who keep sessions as the
        examples of the TypeScript SDK do), with 401, or by an error of JSON-RPC's. What they have in common: they
        refuse all requests of that session alike, and none of a new one."""
        from mcp import types

        if self._begun_anew or error.code == types.INTERNAL_ERROR:
            return False
        session = await connection.opened_session()
        if session.initialize_result is None or not _is_same_refusal(await self._listing_error(connection), error):
            return False
        self._begun_anew = True
        await self._connections.renew(connection)
        return await self._listing_error(self._connections.connection_to(self._server)) is None

    async def _listing_error(self, connection: ServerConnection) -> Exception | None:
        """Why the server does not list its tools on this connection; None if it does."""
        from mcp import MCPError

        try:
            async with asyncio.timeout(CHECK_SECONDS):
                await connection.run_call(RunningCall(), lambda session: session.list_tools())
        except (MCPError, NotConnected, ConnectionLost, TimeoutError, ValueError) as error:
            return error
        return None

    def unreachable_error(self, later: NothingHasRun) -> Exception:
        problem = "does not take the call now" if later.is_reached else "can't be reached"
        text = f"{self._server.label} {problem}: {later.cause.rstrip('.')}."
        if not self._once:
            return Retry(text, after=later.seconds or None)
        again = ""
        if self._memory.again:
            again = " again. It may have run before"
        return ToolFailed(f"{text} The call was not made{again}.")

    def unread_result_error(self, error: MCPError) -> ToolFailed:
        return ToolFailed(f"{self._server.label} has run the call, but its answer can't be read: {error.message}.")

    def unreadable_error(self, error: MCPError) -> Exception:
        text = f"{self._server.label} gave an answer that is not MCP: {error.message}."
        return OutcomeUnknown(cut_text(text)) if self._once else tool_failed(text)

    def lost_error(self, cause: str) -> Exception:
        text = f"{self._server.label} lost its connection in the middle of the call: {cause}."
        return OutcomeUnknown(text) if self._once else Retry(text)

    def check_not_sent(self, cause: str) -> None:
        """Raises OutcomeUnknown for a run-once call that an earlier try has sent."""
        if self._once:
            raise OutcomeUnknown(f"{self._server.label} may have run the call: {cause}.")


def _is_same_refusal(refusal: Exception | None, error: MCPError) -> bool:
    """Whether both are the same refusal, of whatever was asked."""
    from mcp import MCPError

    if not isinstance(refusal, MCPError) or refusal.code != error.code:
        return False
    if error.code == error_codes.HTTP_STATUS:
        return error_codes.status_of(refusal) == error_codes.status_of(error)
    return refusal.message == error.message


def tool_failed(text: str) -> ToolFailed:
    return ToolFailed(cut_text(text))


def cut_text(text: str) -> str:
    return shortened(mend(text), max_bytes=MAX_ERROR_BYTES)
