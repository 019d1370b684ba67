"""An MCP server that is a program of the worker's: started, spoken to over its standard input and output, and ended.

The SDK's own reads lines of any length, and copies each once for every 64 KB of it.
"""

from __future__ import annotations

import asyncio
import json
import re
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, TextIO, cast

from everturn.logs import get_logger
from everturn.tools.mcp import limits
from everturn.tools.mcp.config import McpServer
from everturn.tools.mcp.error_codes import TOO_MUCH, UNREADABLE, is_error_without_id, told_apart
from everturn.tools.mcp.limits import Overflow, TooMuch

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp import types
    from mcp.client._transport import TransportStreams
    from mcp.shared.message import SessionMessage

GOES_SECONDS = 2.0
"""How long the program may take to end by itself once its input is closed, and how long after a signal."""

FLUSH_SECONDS = 0.5
LOOK_SECONDS = 0.02
_HEAD_BYTES = 300

_ANSWERS = re.compile(rb'\s*\{[^{}\[\]]*?"id"\s*:\s*(\d{1,15}|"[^"\\]{1,100}")\s*,\s*"(?:result|error|jsonrpc)"')

_log = get_logger("everturn.mcp")


@asynccontextmanager
async def run_program(server: McpServer, errors: TextIO, overflow: Overflow) -> AsyncIterator[TransportStreams]:
    """Its streams, for the SDK's client. Raises OSError and ValueError if it can't be started."""
    import anyio
    from mcp.client.stdio import get_default_environment
    from mcp.shared.message import SessionMessage

    process = await asyncio.create_subprocess_exec(
        *server.command,
        stdin=PIPE,
        stdout=PIPE,
        stderr=errors or DEVNULL,
        env=get_default_environment() | dict(server.environment()),
        cwd=server.cwd,
        start_new_session=True,
    )
    into, messages = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    answers, out_of = anyio.create_memory_object_stream[SessionMessage](0)
    unanswered = UnansweredRequests()
    reading = asyncio.create_task(_read_messages(process, into, overflow, unanswered))
    writing = asyncio.create_task(_write_messages(process, out_of, into, unanswered))
    try:
        yield messages, answers
    finally:
        answers.close()
        messages.close()
        with anyio.CancelScope(shield=True):
            await asyncio.wait({writing}, timeout=0 if overflow.why else FLUSH_SECONDS)
            try:
                await _end_process(process, at_once=bool(overflow.why))
            finally:
                for task in (reading, writing):
                    task.cancel()
                await asyncio.gather(reading, writing, return_exceptions=True)
                cast("Any", process)._transport.close()  # a child that still has the pipe would hold it open


class UnansweredRequests:
    """The requests that a program has been sent and has not answered."""

    def __init__(self) -> None:
        self._ids: dict[str, types.RequestId] = {}
        self._notified = False
        """Whether what comes next may be about a notification: some programs answer these with an error."""

    def note_sent(self, message: types.JSONRPCMessage) -> None:
        method = getattr(message, "method", None)
        if method is None:
            return  # an answer of ours
        request_id = getattr(message, "id", None)
        if request_id is None:
            self._notified = True
        else:
            self._ids[str(request_id)] = request_id

    def note_answered(self, request_id: types.RequestId | None) -> None:
        self._notified = False
        self._ids.pop(str(request_id), None)

    def find_request(self, request_id: object) -> types.RequestId | None:
        """The request that an answer with this id is about. One without an id is about the only request that there is;
        None if it can't be said."""
        if request_id is not None:
            return self._ids.get(str(request_id))
        if self._notified or len(self._ids) != 1:
            return None
        return next(iter(self._ids.values()))


async def _read_messages(
    process: Process,
    into: MemoryObjectSendStream[SessionMessage | Exception],
    overflow: Overflow,
    unanswered: UnansweredRequests,
) -> None:
    import anyio
    from mcp.shared.message import SessionMessage

    assert process.stdout is not None
    lines = _read_stdout_lines(process.stdout)
    with into:
        try:
            async for line in lines:
                try:
                    limits.check_values(line)
                    message = _read_message(line, unanswered)
                except TooMuch as error:
                    raise _RefusedMessage(error, line[:_HEAD_BYTES]) from None
                if message is None:
                    _log.debug("mcp.no_message", text=line[:_HEAD_BYTES].decode(errors="replace"))
                    continue
                await into.send(SessionMessage(message))
        except _RefusedMessage as error:
            overflow.report(error.reason)
            if error_message := _error_for_call(error):
                with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                    await into.send(error_message)
            return
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # nobody listens any more
        except ConnectionError as error:
            _log.debug("mcp.unreadable", error=str(error))
            return
    with suppress(ConnectionError):
        while await process.stdout.read(limits.PIECE_BYTES):
            pass  # so that it can write its last words, and end


def _read_message(line: bytes, unanswered: UnansweredRequests) -> types.JSONRPCMessage | None:
    """None for a line that is no message, such as one of a log."""
    from mcp import types

    try:
        message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        return _as_unreadable(line, unanswered)
    if isinstance(message, types.JSONRPCError):
        error = told_apart(message.error)
        request_id = unanswered.find_request(message.id) if message.id is None else message.id
        message = types.JSONRPCError(jsonrpc="2.0", id=request_id, error=error)
    if isinstance(message, types.JSONRPCError | types.JSONRPCResponse):
        unanswered.note_answered(message.id)
    return message


def _as_unreadable(line: bytes, unanswered: UnansweredRequests) -> types.JSONRPCError | None:
    """The error for the request that the line was to answer: the SDK would go on waiting for it. None if it was to
    answer none."""
    from mcp import types

    try:
        answer = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(answer, dict) or "method" in answer or not answer.keys() & {"result", "error"}:
        return None
    given = answer.get("id")
    if isinstance(given, float) and given.is_integer():
        given = int(given)
    if (request_id := unanswered.find_request(given)) is None:
        return None
    unanswered.note_answered(request_id)
    error = types.ErrorData(code=UNREADABLE, message="its answer is no message of JSON-RPC 2.0")
    if is_error_without_id(answer):
        with suppress(ValueError):
            error = told_apart(types.ErrorData.model_validate(answer["error"]))
    return types.JSONRPCError(jsonrpc="2.0", id=request_id, error=error)


class _RefusedMessage(Exception):
    def __init__(self, reason: TooMuch, head: bytes) -> None:
        super().__init__(str(reason))
        self.reason = reason
        self.head = head


async def _read_stdout_lines(source: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Raises _Refused."""
    _, pace = limits.new_paces()
    line_so_far = bytearray()
    while piece := await source.read(limits.PIECE_BYTES):
        await pace.wait_for(len(piece))
        *line_ends, next_line_start = piece.split(b"\n")
        for end in line_ends:
            line_so_far += end
            if len(line_so_far) > limits.MAX_MESSAGE_BYTES:
                break
            line = bytes(line_so_far)
            line_so_far.clear()
            if line.strip():
                yield line
        else:
            line_so_far += next_line_start
        if len(line_so_far) > limits.MAX_MESSAGE_BYTES:
            raise _RefusedMessage(limits.too_long(), bytes(line_so_far[:_HEAD_BYTES]))


def _error_for_call(refused: _RefusedMessage) -> SessionMessage | None:
    """An error for the call that the message answers, if its beginning says so: that call has run."""
    from mcp import types
    from mcp.shared.message import SessionMessage

    if (match := _ANSWERS.match(refused.head)) is None:
        return None
    id_text = match[1].decode(errors="replace")
    request_id = id_text[1:-1] if id_text.startswith('"') else int(id_text)
    error = types.ErrorData(code=TOO_MUCH, message=str(refused.reason))
    return SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=request_id, error=error))


async def _write_messages(
    process: Process,
    out_of: MemoryObjectReceiveStream[SessionMessage],
    into: MemoryObjectSendStream[SessionMessage | Exception],
    unanswered: UnansweredRequests,
) -> None:
    assert process.stdin is not None
    try:
        with out_of:
            async for message in out_of:
                unanswered.note_sent(message.message)
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                process.stdin.write(text.encode("utf-8", "replace") + b"\n")
                await process.stdin.drain()
    except OSError:
        into.close()  # the session sees the end, and nobody waits for an answer


async def _end_process(process: Process, *, at_once: bool) -> None:
    from mcp.os.posix.utilities import terminate_posix_process_tree

    assert process.stdin is not None
    with suppress(OSError):
        process.stdin.close()
    if at_once or not await _is_gone(process):
        await terminate_posix_process_tree(cast("Any", process), GOES_SECONDS)
        if not await _is_gone(process):
            _log.warning("mcp.still_alive", pid=process.pid)


async def _is_gone(process: Process) -> bool:
    # wait() would also wait for children that have the pipes.
    with suppress(TimeoutError):
        async with asyncio.timeout(GOES_SECONDS):
            while process.returncode is None:  # noqa: ASYNC110 - it has no event for that
                await asyncio.sleep(LOOK_SECONDS)
    return process.returncode is not None
