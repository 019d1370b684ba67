"""A server on loopback that speaks whichever protocol a test writes: for what a ScriptedModel can't say."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

Json = dict[str, Any]


@dataclass(frozen=True)
class Asked:
    """One request."""

    method: str
    path: str
    query: dict[str, str]
    body: Json


@dataclass(frozen=True)
class Status:
    """An answer that is no 200, or has headers of its own."""

    code: int
    body: Json
    headers: dict[str, str] = field(default_factory=dict)


Answer = Json | Status | Iterable[Json]
"""A JSON object; a failure; or the events of a stream, which may wait for what a test says."""


class QuietHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        self.answer(self.rfile.read(int(self.headers.get("Content-Length") or 0)))

    def do_GET(self) -> None:
        self.answer(b"")

    def answer(self, body: bytes) -> None:
        raise NotImplementedError

    def send_whole(self, data: bytes, kind: str, code: int = 200, headers: dict[str, str] | None = None) -> None:
        self.send_response(code)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


class _QuietServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], OSError):  # a client that went away is everyday business
            super().handle_error(request, client_address)


class LoopbackServer:
    """Each request has a thread of its own."""

    def make_handler(self) -> type[QuietHandler]:
        raise NotImplementedError

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._server = _QuietServer(("127.0.0.1", 0), self.make_handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class ProviderServer(LoopbackServer):
    """`answer` is given each request, in a thread of its own."""

    def __init__(self, answer: Callable[[Asked], Answer]) -> None:
        self.answer = answer
        self.asked: list[Asked] = []

    @property
    def bodies(self) -> list[Json]:
        return [one.body for one in self.asked if one.method == "POST"]

    def make_handler(self) -> type[QuietHandler]:
        outer = self

        class Handler(QuietHandler):
            def answer(self, body: bytes) -> None:
                split = urlsplit(self.path)
                asked = Asked(self.command, split.path, dict(parse_qsl(split.query)), json.loads(body or b"{}"))
                outer.asked.append(asked)
                answer = outer.answer(asked)
                if isinstance(answer, Status):
                    self._json(answer.body, answer.code, answer.headers)
                elif isinstance(answer, dict):
                    self._json(answer, 200)
                else:
                    self._stream(answer)

            def _json(self, body: Json, code: int, headers: dict[str, str] | None = None) -> None:
                self.send_whole(json.dumps(body).encode(), "application/json", code, headers)

            def _stream(self, events: Iterable[Json]) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Connection", "close")
                self.end_headers()
                for event in events:
                    name = f"event: {event['type']}\n" if "type" in event else ""
                    self.wfile.write(f"{name}data: {json.dumps(event)}\n\n".encode())
                    self.wfile.flush()
                self.close_connection = True

        return Handler


def in_order(*answers: Answer) -> Callable[[Asked], Answer]:
    """One answer after the other."""
    left: Iterator[Answer] = iter(answers)
    return lambda _: next(left)


def response(*items: Json, **fields: Any) -> Json:
    """A response of OpenAI's Responses API."""
    usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    return {
        "id": "resp_1",
        "object": "response",
        "status": "completed",
        "output": list(items),
        "usage": usage,
        **fields,
    }


def message_item(text: str) -> Json:
    block = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [block]}


def claude(*blocks: Json, stop: str = "end_turn") -> Json:
    """A message of Anthropic's."""
    usage = {"input_tokens": 10, "output_tokens": 5}
    known = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-test", "stop_sequence": None}
    return {**known, "content": list(blocks), "stop_reason": stop, "usage": usage}
