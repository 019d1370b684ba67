"""How a server is reached: a program of the worker's own, or HTTP, with errors that say whether a request was sent."""

from __future__ import annotations

import asyncio
import json
import os
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, TextIO

import httpx2
from pydantic_core import from_json

from everturn.http.content_encoding import ACCEPTED
from everturn.http.headers import read_media_type
from everturn.http.retry_after import LONGEST_SECONDS, seconds_to_wait
from everturn.logs import get_logger
from everturn.tools.mcp import bodies, limits
from everturn.tools.mcp.config import McpServer
from everturn.tools.mcp.error_codes import (
    HTTP_STATUS,
    LOST,
    NOT_SENT,
    SESSION_GONE,
    TOO_MUCH,
    UNREADABLE,
    is_error_without_id,
    message_told_apart,
    text_told_apart,
)
from everturn.tools.mcp.limits import Overflow
from everturn.tools.mcp.paced import bound_streams
from everturn.tools.mcp.programs import run_program

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

MAX_SHOWN_CHARS = 300
"""Of the body of a refusal."""

REFUSED_UNREAD = (401, 403, 408, 425, 429, 503)
"""HTTP statuses whose meaning counts, whatever the body says: the request was not begun with. (RFC 9110; 425: RFC 8470;
429: RFC 6585.)"""

_TAIL_LINES = 5
_LINE_CHARS = 500

_log = get_logger("everturn.mcp")


class ProgramStderr:
    """What a program wrote on its standard error: logged, and its last lines kept for errors."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)

    @property
    def last_lines(self) -> str:
        return " | ".join(self._tail)

    @asynccontextmanager
    async def pipe(self) -> AsyncIterator[TextIO]:
        read_end, write_end = os.pipe()
        reader = asyncio.StreamReader(limit=limits.PIECE_BYTES)
        source = os.fdopen(read_end, "rb", buffering=0)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), source)
        listening = asyncio.create_task(self._read_stderr(reader))
        try:
            with os.fdopen(write_end, "w") as sink:
                yield sink
        finally:
            with suppress(asyncio.TimeoutError):  # the last words of a program that has ended
                await asyncio.wait_for(listening, 0.2)
            transport.close()

    async def _read_stderr(self, reader: asyncio.StreamReader) -> None:
        pace = limits.pace_of_errors()
        unfinished_line = b""
        while piece := await reader.read(limits.PIECE_BYTES):
            await pace.wait_for(len(piece))
            *lines, unfinished_line = (unfinished_line + piece).split(b"\n")
            unfinished_line = unfinished_line[: limits.PIECE_BYTES]
            for line in lines[-limits.MAX_LINES_AT_ONCE :]:
                self._keep_line(line)
        self._keep_line(unfinished_line)

    def _keep_line(self, line: bytes) -> None:
        if text := line.decode(errors="replace").strip()[:_LINE_CHARS]:
            self._tail.append(text)
            _log.debug("mcp.said", server=self._server, text=text)


@asynccontextmanager
async def open_streams(server: McpServer, stderr: ProgramStderr, overflow: Overflow) -> AsyncIterator[TransportStreams]:
    """The transport, for the SDK's client. `overflow` gets what the server did if it sends too much."""
    if server.command:
        async with stderr.pipe() as sink, run_program(server, sink, overflow) as (messages, answers):
            yield bound_streams(messages, answers, overflow)
        return
    from mcp.client.streamable_http import streamable_http_client

    # A call may be silent for as long as its time-out lets it.
    timeout = httpx2.Timeout(30.0, read=None)
    headers = {"User-Agent": f"everturn/{version('everturn')}", "Accept-Encoding": ACCEPTED, **server.all_headers()}
    transport = _ReportingTransport(overflow)
    async with (
        httpx2.AsyncClient(headers=headers, timeout=timeout, transport=transport, auth=server.all_auth()) as client,
        # Events are bounded where their bytes come in.
        streamable_http_client(server.url, http_client=client, max_sse_event_size=None) as (messages, answers),
    ):
        yield bound_streams(messages, answers, overflow)


class _ReportingTransport(httpx2.AsyncHTTPTransport):
    """The SDK ends all requests of a connection if one of them can't be sent, and forgets the status of a refusal.
    Here, each of them is answered by itself, with an error of JSON-RPC's that says what happened."""

    def __init__(self, overflow: Overflow) -> None:
        super().__init__()
        self._overflow = overflow

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.method != "POST":
            return bodies.bound_body(await super().handle_async_request(request), self._overflow)
        try:
            answer = await super().handle_async_request(request)
            response = bodies.bound_body(answer, self._overflow, request_id=_request_id(request))
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            return _error_response(request, NOT_SENT, str(error) or type(error).__name__, status=503)
        except httpx2.TransportError as error:
            return _error_response(request, LOST, str(error) or type(error).__name__, status=502)
        kind = read_media_type(response.headers)
        if not _message_in(request) or (response.status_code < 400 and kind == "text/event-stream"):
            return response
        try:
            response.request = request
            body = b""
            if kind != "text/event-stream":
                body = await response.aread()
        except bodies.TooMuchSent as error:
            return _error_response(request, TOO_MUCH, str(error), status=response.status_code)
        except httpx2.TransportError as error:
            if response.status_code < 400:
                return _error_response(request, LOST, str(error) or type(error).__name__, status=502)
            body = b""
        if response.status_code >= 400:
            return _refusal_response(request, response, body)
        return _answer_response(request, response, body, kind)


def _answer_response(request: httpx2.Request, response: httpx2.Response, body: bytes, kind: str) -> httpx2.Response:
    """The answer to a request, or an error of our own if there is none in it. The SDK would make INVALID_REQUEST of it,
    as if the server had not begun with the request."""
    if _request_id(request) is None or response.status_code >= 300:
        return response
    if response.status_code == 202 or not body.strip():
        return _error_response(request, LOST, f"HTTP {response.status_code} without an answer", status=502)
    if not kind.startswith("application/json"):
        return _error_response(request, UNREADABLE, f"the answer is {kind or 'of no kind'}, and not JSON", status=502)
    answer = _read_message(body)
    if answer is None:
        return response  # the SDK says what it can't read
    request_id = _request_id(request)
    if problem := _misplaced(answer, request_id):
        return _error_response(request, UNREADABLE, problem, status=502)
    changed = message_told_apart(answer)
    if answer.get("id") is None:
        changed = {**changed, "id": request_id}
    if changed is answer:
        return response
    return _json_response(request, response.status_code, json.dumps(changed).encode())


def _misplaced(answer: dict[str, Any], request_id: Any) -> str:
    """Why this is no answer to the request, which the SDK would go on waiting for; empty if it is one."""
    if is_error_without_id(answer):
        return ""
    if "result" not in answer and "error" not in answer:
        return "it holds neither a result nor an error"
    if str(answer.get("id")) != str(request_id):
        return "it answers another request"
    return ""


def _refusal_response(request: httpx2.Request, response: httpx2.Response, body: bytes) -> httpx2.Response:
    """An answer with a status from 400 on. With an error of JSON-RPC to this very request, it is the server's answer,
    as the protocol of 2026 has it; anything else counts by its status."""
    status = response.status_code
    problem = _rpc_error(body)
    if status == 404 and "mcp-session-id" in request.headers:
        return _error_response(request, SESSION_GONE, "it has forgotten the session", status=404)
    if problem and status not in REFUSED_UNREAD and problem["id"] is not None:
        return _json_response(request, status, text_told_apart(body))
    text = f"HTTP {status} {response.reason_phrase}".strip()
    words = (problem and problem["error"].get("message")) or _body_in_words(response, body)
    if words:
        text = f"{text}: {words}"
    wait = seconds_to_wait(response.headers)
    if wait is not None:
        wait = min(wait, LONGEST_SECONDS)
    data = {"status": status, "retry_after": wait}
    refusal = _error_response(request, HTTP_STATUS, text, status=status, data=data)
    if "www-authenticate" in response.headers:  # says where a token is to be had
        refusal.headers["www-authenticate"] = response.headers["www-authenticate"]
    return refusal


def _rpc_error(body: bytes) -> dict[str, Any] | None:
    """A message of JSON-RPC's that is an error; None for any other body."""
    message = _read_message(body)
    if message is None or not isinstance(message.get("error"), dict):
        return None
    return {"id": message.get("id"), "error": message["error"]}


def _read_message(body: bytes) -> dict[str, Any] | None:
    """None for what is no message of JSON-RPC's."""
    try:
        message = from_json(body)
    except ValueError:
        return None
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        return None
    return message


def _body_in_words(response: httpx2.Response, body: bytes) -> str:
    kind = response.headers.get("content-type", "").lower()
    if not kind.startswith(("application/json", "application/problem+json", "text/plain")):
        return ""
    text = " ".join(body.decode("utf-8", "replace").split())[:MAX_SHOWN_CHARS]
    return "" if text == response.reason_phrase else text


def _message_in(request: httpx2.Request) -> dict[str, Any]:
    """What it sends in JSON-RPC; empty for anything else, such as a request for a token."""
    try:
        envelope = json.loads(request.content)
    except (ValueError, httpx2.RequestNotRead):
        return {}
    if isinstance(envelope, dict) and "jsonrpc" in envelope:
        return envelope
    return {}


def _request_id(request: httpx2.Request) -> Any:
    """The request's id; None for a notification or an answer."""
    envelope = _message_in(request)
    if "method" not in envelope:
        return None
    return envelope.get("id")


def _json_response(request: httpx2.Request, status: int, content: bytes) -> httpx2.Response:
    return httpx2.Response(status, headers={"content-type": "application/json"}, content=content, request=request)


def _error_response(
    request: httpx2.Request, code: int, message: str, *, status: int, data: dict[str, Any] | None = None
) -> httpx2.Response:
    error = {"code": code, "message": message, "data": data}
    return _json_response(
        request, status, json.dumps({"jsonrpc": "2.0", "id": _request_id(request), "error": error}).encode()
    )
