"""Connections to MCP servers: one for each server of a worker, opened when it is needed, and again when it has died."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from everturn.errors import InvalidTool
from everturn.logs import get_logger
from everturn.tools.mcp import greetings, tasks
from everturn.tools.mcp.config import McpServer
from everturn.tools.mcp.limits import Overflow

if TYPE_CHECKING:
    from mcp import Client, ClientSession, types
    from mcp.client.session import ClientRequestContext

R = TypeVar("R")

LISTEN_AGAIN_SECONDS = 30.0

LATE_QUESTION_SECONDS = 5.0
"""How long after a call was given up its question may come: the server may have sent it before it knew."""

CLOSE_SECONDS = 8.0
"""How long a server may take to go: the SDK closes its input, then asks it to end, then kills it."""

_log = get_logger("everturn.mcp")


class NotConnected(Exception):
    """No connection could be made, or nothing of a request was sent: no tool has run. `cure`: what to do, if that is
    known."""

    def __init__(self, message: str, cure: str = "") -> None:
        super().__init__(message)
        self.cure = cure


class ConnectionLost(Exception):
    """The connection ended while a call was under way."""


class RunningCall:
    """One call that is under way on a connection."""

    def __init__(self) -> None:
        self.answered = False
        """The server has said what it came to, or its question has reached it: it asks nothing more."""
        self.elicits: Callable[[types.ElicitRequestParams], types.ElicitResult | types.ErrorData] | None = None


_this_call: ContextVar[RunningCall | None] = ContextVar("mcp_call", default=None)


class ServerConnection:
    """A task of its own opens it, holds it open and closes it: what the SDK opens in one task, only that one closes."""

    def __init__(self, server: McpServer, *, on_change: Callable[[], None], legacy: bool = False) -> None:
        self.server = server
        self.legacy = legacy or server.protocol == "legacy"
        """Whether it is greeted with the handshake of before 2026, without asking for the newer protocol first: since
        the user says so, or since it ended at the other one before."""
        self._on_change = on_change
        self._opened: asyncio.Future[ClientSession] = asyncio.get_running_loop().create_future()
        self._stop = asyncio.Event()
        self._running: dict[RunningCall, None] = {}
        self._given_up: dict[RunningCall, float] = {}
        """Calls that ended without an answer, and when: what they ask may still be on its way."""
        self._waiting = 0
        """How many questions may belong to more than one call."""
        self._fewer = asyncio.Condition()
        self._idle = asyncio.Event()
        self._idle.set()
        self._why = ""
        self._cure = ""
        self._overflow = Overflow()
        self._owner = asyncio.create_task(self._hold_open())

    @property
    def is_alive(self) -> bool:
        return not self._owner.done() and not self._stop.is_set() and not self._overflow.why

    @property
    def ended_for(self) -> str:
        """What the server sent too much of, if that ended the connection."""
        return self._overflow.why

    async def opened_session(self) -> ClientSession:
        """Raises NotConnected."""
        both: set[asyncio.Future[Any]] = {self._opened, self._owner}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if self._opened.done() and not self._opened.cancelled():
            return self._opened.result()
        raise NotConnected(self._why or "it was closed", self._cure)

    async def run_call(self, call: RunningCall, send: Callable[[ClientSession], Coroutine[Any, Any, R]]) -> R:
        """What the server answers. Raises MCPError, NotConnected and ConnectionLost."""
        from mcp import MCPError, types

        session = await self.opened_session()
        token = _this_call.set(call)
        self._running[call] = None
        self._idle.clear()
        sending = asyncio.create_task(send(session))
        _this_call.reset(token)
        try:
            await asyncio.wait({sending, self._owner}, return_when=asyncio.FIRST_COMPLETED)
            if not sending.done():
                raise ConnectionLost(self._why or "it was closed")
            call.answered = True
            try:
                return sending.result()
            except MCPError as error:
                if error.code == types.CONNECTION_CLOSED and self._overflow.why:
                    raise ConnectionLost(self._overflow.why) from None
                raise
        finally:
            if not sending.done():
                sending.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await sending
            del self._running[call]
            if not self._running:
                self._idle.set()
            if not call.answered:
                self._forget_given_up()
                self._given_up[call] = time.monotonic()
            async with self._fewer:
                self._fewer.notify_all()

    async def close_when_idle(self) -> None:
        """Closes it once the calls that it carries have ended."""
        both = [asyncio.create_task(self._idle.wait()), self._owner]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        both[0].cancel()
        await self.close()

    @property
    def is_idle(self) -> bool:
        return not self._running or not self.is_alive

    async def close(self) -> None:
        self._stop.set()
        _, late = await asyncio.wait({self._owner}, timeout=CLOSE_SECONDS)
        for task in late:
            task.cancel()
            await asyncio.wait({task}, timeout=1.0)

    async def _hold_open(self) -> None:
        """Holds it open. Some servers of before 2026 end at the newer protocol's first request, or never answer it
        (rmcp's, 0.x to 1.0): they are started, or connected to, once more, and greeted in their way."""
        if self.legacy:
            await self._open_until_closed("legacy")
        elif await self._open_until_closed("auto") and not self._stop.is_set():
            newer = self._why
            self._why = ""
            self._cure = ""
            self._overflow = Overflow()
            await self._open_until_closed("legacy")
            if not self._opened.done() and self._why != newer:
                self._why = f"{newer}; and with protocol='legacy': {self._why}"

    async def _open_until_closed(self, mode: Literal["auto", "legacy"]) -> bool:
        """Returns once it is closed, or could not be opened. Returns whether another greeting may help."""
        from mcp import Client

        from everturn.tools.mcp.transports import ProgramStderr, open_streams

        label = self.server.label
        stderr = ProgramStderr(label)
        may_reconnect = False
        try:
            client = Client(
                open_streams(self.server, stderr, self._overflow),
                mode=mode,
                elicitation_callback=self._on_elicitation,
                message_handler=self._on_message,
                cache=None,
                extensions=[tasks.extension()],
                client_info=_client_info(),
            )
            async with asyncio.timeout(self.server.start_timeout.total_seconds()) as limit:
                async with client:
                    limit.reschedule(None)
                    self.legacy = mode == "legacy"
                    self._opened.set_result(client.session)
                    _log.info("mcp.connected", server=label, protocol=client.protocol_version)
                    await self._until_closed(client)
        except TimeoutError:
            self._why = f"it did not greet within {self.server.start_timeout}"
            may_reconnect = True
        except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001 - the SDK's, the system's and the network's
            cause = _first_error(error)
            self._why = _error_text(cause)
            may_reconnect = greetings.may_be_the_reason(cause)
            if not self._opened.done():
                problem = await greetings.problem_of(self.server, cause)
                if problem.words:
                    self._why = f"{self._why}: {problem.words}"
                self._cure = problem.cure
        finally:
            self._why = self._overflow.why or self._why
            if stderr.last_lines:
                self._why = f"{self._why or 'it ended'}; it said: {stderr.last_lines}"
            if self._opened.done() and not self._stop.is_set():
                _log.warning("mcp.disconnected", server=label, why=self._why or "it ended")
                self._on_change()
        return may_reconnect and not self._opened.done() and not self._overflow.why

    async def _until_closed(self, client: Client) -> None:
        """Until it is to be closed, or the server's end is gone."""
        changes = asyncio.create_task(self._listen_for_changes(client))
        stop = asyncio.create_task(self._stop.wait())
        gone = asyncio.create_task(_wait_until_ended(client))
        too_much = asyncio.create_task(self._overflow.reported.wait())
        all_of = (changes, stop, gone, too_much)
        try:
            await asyncio.wait(all_of[1:], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in all_of:
                task.cancel()
            await asyncio.gather(*all_of, return_exceptions=True)

    async def _listen_for_changes(self, client: Client) -> None:
        """Servers of the protocol of 2026 say only to those who listen that their tools have changed."""
        offered = client.server_capabilities.tools
        if client.session.discover_result is None or not (offered and offered.list_changed):
            return
        while True:
            with suppress(Exception):
                async with client.listen(tools_list_changed=True) as subscription:
                    async for _ in subscription:
                        self._on_change()
            await asyncio.sleep(LISTEN_AGAIN_SECONDS)
            self._on_change()  # nobody has told us of changes meanwhile

    async def _on_message(self, message: Any) -> None:
        from mcp import types

        if isinstance(message, types.ToolListChangedNotification):
            self._on_change()

    async def _on_elicitation(
        self,
        context: ClientRequestContext,  # noqa: ARG002 - the SDK's signature
        params: types.ElicitRequestParams,
    ) -> types.ElicitResult | types.ErrorData:
        """A question in the middle of a call. The protocol of before 2026 does not say of which one."""
        from mcp import types

        call = _this_call.get() or await self._find_asking_call()
        if call is None or call.elicits is None:
            return types.ErrorData(
                code=types.INVALID_REQUEST,
                message="The server doesn't say which call asks this question, and more than one may have asked it.",
            )
        return call.elicits(params)

    async def _find_asking_call(self) -> RunningCall | None:
        """The call that asks; None if that can't be told. Waits until the server has answered the others: the one that
        asks can't be answered before. If one was given up, such as by its time-out, it may be the one that asked."""
        self._forget_given_up()
        asking = [*self._running, *self._given_up]
        unanswered: list[RunningCall] = []

        def is_clear() -> bool:
            unanswered[:] = [call for call in asking if not call.answered]
            return len(unanswered) <= self._waiting or any(call not in self._running for call in unanswered)

        self._waiting += 1
        try:
            async with self._fewer:
                await self._fewer.wait_for(is_clear)
        finally:
            self._waiting -= 1
        if len(unanswered) == 1 and unanswered[0] in self._running:
            return unanswered[0]
        return None

    def _forget_given_up(self) -> None:
        now = time.monotonic()
        self._given_up = {
            call: given_up_at
            for call, given_up_at in self._given_up.items()
            if now < given_up_at + LATE_QUESTION_SECONDS
        }


class ServerConnections:
    """A worker's connections, by `McpServer.place`: agents with the same server share one."""

    def __init__(self, *, on_change: Callable[[McpServer], None]) -> None:
        self._on_change = on_change
        self._open: dict[tuple[Any, ...], ServerConnection] = {}
        self._retiring: dict[ServerConnection, asyncio.Task[None]] = {}
        """Those that carry calls still, and get no new ones."""
        self._legacy: set[tuple[Any, ...]] = set()
        """The servers that were opened by the older greeting."""

    def connection_to(self, server: McpServer) -> ServerConnection:
        """The connection; another one if it has died."""
        known = self._open.get(server.place)
        if known is None or not known.is_alive:
            self._remember_greeting(known)
            legacy = server.place in self._legacy
            known = ServerConnection(server, on_change=lambda: self._on_change(server), legacy=legacy)
            self._open[server.place] = known
        return known

    async def renew(self, connection: ServerConnection) -> None:
        """Closes a connection that is of no use any more: the next caller gets a new one. Other calls that it carries
        go on: whether they have an answer is between them and the server."""
        if self._open.get(connection.server.place) is not connection:
            return
        self._remember_greeting(self._open.pop(connection.server.place))
        if connection.is_idle:
            await connection.close()
            return
        self._retiring[connection] = retiring = asyncio.create_task(connection.close_when_idle())
        retiring.add_done_callback(lambda _: self._retiring.pop(connection, None))

    def _remember_greeting(self, connection: ServerConnection | None) -> None:
        if connection is not None and connection.legacy:
            self._legacy.add(connection.server.place)

    async def close(self) -> None:
        connections = [*self._open.values(), *self._retiring]
        self._open = {}
        await asyncio.gather(*(connection.close() for connection in connections))


async def _wait_until_ended(client: Client) -> None:
    """Returns once the SDK's reading end has closed. It has no event for that, so that we look."""
    dispatcher = client.session._dispatcher
    while not getattr(dispatcher, "_closed", False):  # noqa: ASYNC110
        await asyncio.sleep(0.5)


def _client_info() -> types.Implementation:
    from importlib.metadata import version

    from mcp import types

    return types.Implementation(name="everturn", version=version("everturn"))


def _first_error(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _error_text(error: BaseException) -> str:
    if isinstance(error, InvalidTool) or type(error).__name__ == "MCPError":
        return str(error).rstrip(".")
    if not str(error):
        return type(error).__name__
    return f"{type(error).__name__}: {error}"
