"""A model each of whose words is the time at which it was written: `python -m benchmarks.ticker`.

The first reply of a conversation calls the tool; the second one ticks. Prints its base URL, and ends with its parent.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from benchmarks import work
from everturn.testing import call, wire

WORDS = 100
SECONDS_PER_WORD = 0.025
HEAD = {"id": "chatcmpl-ticker", "object": "chat.completion.chunk", "created": 0, "model": "demo"}


def ticking() -> Iterator[bytes]:
    for _ in range(WORDS):
        time.sleep(SECONDS_PER_WORD)
        yield event({"content": f"{time.time():.4f} "})
    yield event({}, finish="stop")
    usage = {"prompt_tokens": 1, "completion_tokens": WORDS, "total_tokens": WORDS + 1}
    yield data({**HEAD, "choices": [], "usage": usage})
    yield b"data: [DONE]\n\n"


def event(delta: dict[str, str], *, finish: str | None = None) -> bytes:
    return data({**HEAD, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def data(value: object) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        first = all(message["role"] != "assistant" for message in body["messages"])
        lookup = call(work.TOOL["function"]["name"], {"number": 0})
        called = wire.reply_events(lookup, model="demo", turn=0, prompt_bytes=0, usage=True)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in called if first else ticking():
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_: object) -> None: ...


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.server_address[1]}/v1", flush=True)
    os.read(0, 1)
