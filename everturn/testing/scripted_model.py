"""ScriptedModel says what a script tells it: a real HTTP server on loopback that speaks Chat Completions."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable
from http import HTTPStatus
from http.client import responses
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain, islice
from typing import Any, Self

from pydantic_core import from_json, to_json

from everturn.testing import wire
from everturn.testing.reply_picker import ReplyPicker, turn_of
from everturn.testing.script import (
    Cut,
    Fail,
    Garbage,
    Order,
    Reply,
    Script,
    Slow,
    Whole,
    fail,
    script_error,
)

LONGEST_WAIT_SECONDS = 60.0


class ScriptedModel:
    """`POST {base_url}/chat/completions`, streamed or not, answered from `script`; a context manager, sync or async.

    `script` is a list of replies or a function `(messages) -> reply` (or `(messages, body) -> reply`; async too).
    How a list is gone through: `everturn.testing.reply_picker.ReplyPicker`. A list's end answers 500, and says so.
    `keep`: how many of the last requests `requests` holds; None for all, 0 for none.
    """

    def __init__(
        self,
        script: Script,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        order: Order = "position",
        keep: int | None = None,
    ) -> None:
        self._picker = ReplyPicker(script, order=order)
        self._address = (host, port)
        self._requests: deque[dict[str, Any]] = deque(maxlen=keep)
        self._lock = threading.Lock()
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def base_url(self) -> str:
        """The value for SCRIPTED_BASE_URL, or for the base URL of any provider."""
        host, port = self._address
        return f"http://{host}:{port}/v1"

    @property
    def requests(self) -> list[dict[str, Any]]:
        """The request bodies received so far, oldest first."""
        with self._lock:
            return list(self._requests)

    def start(self) -> Self:
        """Starts to listen. After that, `base_url` has the real port."""
        self._server = _Server(self._address, self)
        self._address = (self._address[0], self._server.server_address[1])
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="everturn-scripted-model", daemon=True
        )
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stops listening and breaks the connections, as a killed server would. Does nothing if it is not running."""
        if self._server and self._thread:
            self._server.shutdown()
            self._server.server_close()
            self._server.break_connections()
            self._thread.join()
        self._server = self._thread = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        return self.start()

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.stop)

    def _answer_request(self, body: dict[str, Any], size: int) -> _Answer:
        with self._lock:
            self._requests.append(body)
        try:
            return _answer_with(self._picker.pick(body), body, size)
        except Exception as error:  # noqa: BLE001 - what the script gave is no reply: its user has to see that
            return _failure_answer(script_error(f"the script's reply is invalid: {error}", code="script_failed"))


class _Answer:
    """The bytes to send, one write for each piece. `breaks` closes the connection after them."""

    def __init__(
        self, pieces: Iterable[bytes], *, breaks: bool = False, pause: float = 0.0, until: threading.Event | None = None
    ) -> None:
        # What need not wait goes out in one write: fewer system calls, and no delayed acknowledgements.
        self.pieces = pieces if pause or until else [b"".join(pieces)]
        self.breaks = breaks
        self.pause = pause
        self.until = until
        """The event to wait for at an empty piece."""


def _answer_with(reply: Reply, body: dict[str, Any], size: int) -> _Answer:
    if isinstance(reply, Fail):
        return _failure_answer(reply)
    if isinstance(reply, Garbage):
        return _plain_answer(HTTPStatus.OK, reply.data, content_type=reply.content_type)
    if isinstance(reply, Slow):
        time.sleep(reply.seconds)
        return _spoken_answer(
            reply.reply, body, size, per_chunk=reply.per_chunk, wait_after=reply.after, until=reply.until
        )
    if isinstance(reply, Cut):
        return _spoken_answer(reply.reply, body, size, cut_after=reply.after, wait_after=reply.after, until=reply.until)
    return _spoken_answer(reply, body, size)


def _spoken_answer(
    reply: Whole,
    body: dict[str, Any],
    size: int,
    *,
    per_chunk: float = 0.0,
    cut_after: int | None = None,
    wait_after: int = 0,
    until: threading.Event | None = None,
) -> _Answer:
    model = str(body.get("model", ""))
    turn = turn_of(body["messages"])
    if not body.get("stream"):
        data = wire.whole_reply(reply, model=model, turn=turn, prompt_bytes=size)
        end = len(data) if cut_after is None else len(data) // 2
        head = _response_head(HTTPStatus.OK, {"Content-Type": "application/json", "Content-Length": str(len(data))})
        return _Answer([head, b"", data[:end]], breaks=cut_after is not None, until=until)
    options = body.get("stream_options") or {}
    events = wire.reply_events(
        reply, model=model, turn=turn, prompt_bytes=size, usage=bool(options.get("include_usage"))
    )
    head = _response_head(HTTPStatus.OK, {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"})
    chunks = map(_http_chunk, islice(events, cut_after))
    last = [] if cut_after is not None else [b"0\r\n\r\n"]
    pieces = chain([head], islice(chunks, wait_after), [b""], chunks, last)
    return _Answer(pieces, breaks=cut_after is not None, pause=per_chunk, until=until)


def _failure_answer(reply: Fail) -> _Answer:
    headers = dict(reply.headers)
    content_type = next((headers.pop(name) for name in [*headers] if name.lower() == "content-type"), None)
    return _plain_answer(reply.status, reply.body, content_type=content_type or "application/json", headers=headers)


def _plain_answer(
    status: int, data: bytes, *, content_type: str = "application/json", headers: dict[str, str] | None = None
) -> _Answer:
    fields = {"Content-Type": content_type, "Content-Length": str(len(data)), **(headers or {})}
    return _Answer([_response_head(status, fields), data])


def _response_head(status: int, headers: dict[str, str]) -> bytes:
    lines = [
        f"HTTP/1.1 {int(status)} {responses.get(status, '')}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def _http_chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512

    def __init__(self, address: tuple[str, int], model: ScriptedModel) -> None:
        self.model = model
        self._connections: set[socket.socket] = set()
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._connections.discard(request)
        super().shutdown_request(request)

    def break_connections(self) -> None:
        for connection in [*self._connections]:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A client that was killed, or gave up waiting, is everyday business here.
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def do_GET(self) -> None:
        if self.path.rstrip("/").endswith("/models"):
            listed = {"object": "list", "data": [{"id": "demo", "object": "model", "owned_by": "everturn"}]}
            self._send_answer(_plain_answer(HTTPStatus.OK, to_json(listed)))
        else:
            self._send_answer(_failure_answer(fail(404, f"scripted model: there is nothing at GET {self.path}")))

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if not self.path.partition("?")[0].endswith("/chat/completions"):
            self._send_answer(_failure_answer(fail(404, f"scripted model: there is nothing at POST {self.path}")))
            return
        try:
            body = from_json(data)
        except ValueError as error:
            body = str(error)
        if not isinstance(body, dict) or not isinstance(body.get("messages"), list):
            self._send_answer(
                _failure_answer(fail(400, f"scripted model: not a Chat Completions request: {body!r:.200}"))
            )
            return
        self._send_answer(self.server.model._answer_request(body, len(data)))

    def _send_answer(self, answer: _Answer) -> None:
        for piece in answer.pieces:
            if not piece:
                if answer.until:
                    answer.until.wait(LONGEST_WAIT_SECONDS)
                continue
            if answer.pause:
                time.sleep(answer.pause)
            self.wfile.write(piece)
        if answer.breaks:
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Writes no log: `requests` is the log."""
