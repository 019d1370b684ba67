"""An MCP server of 2025 over HTTP that does with each call what a test says: it is refused, forgotten, cut, or run."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import uuid4

Message = dict[str, Any]


@dataclass(frozen=True)
class Answer:
    status: int
    body: str = ""
    kind: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)


Answering = Callable[[Message], Answer]


def status(number: int, body: Any = None, **headers: str) -> Answering:
    """A refusal that is no JSON-RPC: an object as JSON, a text as text."""
    written = Answer(number, body or "", "text/plain" if isinstance(body, str) else "text/html", headers)
    if isinstance(body, dict):
        written = Answer(number, json.dumps(body), headers=headers)
    return lambda _: written


def rpc(code: Any, words: str, *, number: int = 200, has_id: bool = True, **headers: str) -> Answering:
    """An error of JSON-RPC's, with an HTTP status."""

    def answer(message: Message) -> Answer:
        error = {"code": code, "message": words}
        body = {"jsonrpc": "2.0", "id": message["id"] if has_id else None, "error": error}
        return Answer(number, json.dumps(body), headers=headers)

    return answer


def stream(answering: Answering) -> Answering:
    """The same as an event of a stream."""
    return lambda message: Answer(200, f"event: message\ndata: {answering(message).body}\n\n", "text/event-stream")


def ran(message: Message) -> Answer:
    result = {"content": [{"type": "text", "text": f"paid {message['params']['arguments'].get('cents')}"}]}
    return Answer(200, json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}))


class Played:
    """`answers`: to the calls, one after the other; those after them run. `forgotten`: what all requests of a session
    get that the server does not know. `refused`: the status that all that is sent gets. `old_stream`: a GET opens a
    stream of HTTP with SSE, of before 2025."""

    def __init__(
        self,
        answers: Sequence[Answering] = (),
        *,
        forgotten: Answering | None = None,
        refused: int = 0,
        old_stream: bool = False,
    ) -> None:
        self._answers = list(answers)
        self._forgotten = forgotten
        self._refused = refused
        self.old_stream = old_stream
        self._sessions: set[str] = set()
        self.url = ""
        self.calls: list[Message] = []
        """Those that came, whether or not they ran."""
        self.paid: list[Any] = []
        self.began = threading.Event()
        self.may_end = threading.Event()

    def forget(self) -> None:
        """The server is restarted."""
        self._sessions.clear()

    def answer(self, message: Message, session: str | None) -> Answer:
        if self._refused:
            return Answer(self._refused)
        if "id" not in message:
            return Answer(202)
        method = message["method"]
        if method == "initialize":
            return self._greet(message)
        if method == "server/discover":
            return rpc(-32601, "Method not found")(message)
        if self._forgotten and session not in self._sessions:
            return self._forgotten(message)
        if method == "tools/list":
            tools = [{"name": "pay", "inputSchema": {"type": "object"}}]
            return Answer(200, json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {"tools": tools}}))
        return self._call(message)

    def _greet(self, message: Message) -> Answer:
        result = {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "played", "version": "1"},
        }
        headers = {}
        if self._forgotten:
            session = uuid4().hex
            self._sessions.add(session)
            headers = {"mcp-session-id": session}
        return Answer(200, json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), headers=headers)

    def _call(self, message: Message) -> Answer:
        self.calls.append(message)
        if message["params"]["arguments"].get("slow"):
            self.began.set()
            self.may_end.wait(30)
        elif self._answers:
            return self._answers.pop(0)(message)
        self.paid.append(message["params"]["arguments"].get("cents"))
        return ran(message)


@contextmanager
def served(played: Played) -> Iterator[Played]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None: ...

        def do_GET(self) -> None:
            event = "event: endpoint\ndata: /messages?session=1\n\n"
            self._send(Answer(200, event, "text/event-stream") if played.old_stream else Answer(405))

        def do_DELETE(self) -> None:
            self._send(Answer(405))

        def do_POST(self) -> None:
            message = json.loads(self.rfile.read(int(self.headers["content-length"])))
            self._send(played.answer(message, self.headers["mcp-session-id"]))

        def _send(self, answer: Answer) -> None:
            data = answer.body.encode()
            self.send_response(answer.status)
            for name, value in {"content-type": answer.kind, **answer.headers}.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    played.url = f"http://127.0.0.1:{server.server_port}/mcp"
    try:
        yield played
    finally:
        server.shutdown()
        server.server_close()
