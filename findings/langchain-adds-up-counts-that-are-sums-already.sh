#!/usr/bin/env bash
# LANGCHAIN ADDS UP THE USAGE OF EVERY CHUNK: from servers whose chunks count all so far, 100 tokens are 500.
#
# Software:  langchain-openai 1.7.4 (PyPI)
# Expected:  usage_metadata of a streamed reply is what the last chunk says, as of the same reply whole
# Seen:      each chunk's usage is added to the others'. With a usage in five chunks (vLLM's continuous_usage_stats, xAI),
#            a prompt of 100 tokens is counted five times, and 3 tokens of output are 12
# It matters to: who bills or limits by usage_metadata of streams: take the last chunk's, or leave streaming counts off
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "langchain-openai==1.7.4" || exit 2
"$folder/venv/bin/python" - <<'PY'
import json
import threading
from functools import reduce
from http.server import BaseHTTPRequestHandler, HTTPServer
from operator import add

from langchain_openai import ChatOpenAI


def chunk(text: str, count: int, finish: str | None = None) -> dict:
    usage = {"prompt_tokens": 100, "completion_tokens": count, "total_tokens": 100 + count}
    choice = {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": finish}
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice], "usage": usage}


CHUNKS = [chunk("A", 1), chunk("B", 2), chunk("C", 3), chunk("", 3, "stop"), chunk("", 3) | {"choices": []}]
MESSAGE = {"role": "assistant", "content": "ABC"}
WHOLE = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "usage": CHUNKS[-1]["usage"]}
WHOLE["choices"] = [{"index": 0, "message": MESSAGE, "finish_reason": "stop"}]


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream" if asked.get("stream") else "application/json")
        self.end_headers()
        if asked.get("stream"):
            for chunk in CHUNKS:
                self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
            self.wfile.write(b"data: [DONE]\n\n")
        else:
            self.wfile.write(json.dumps(WHOLE).encode())

    def log_message(self, *_: object) -> None: ...


server = HTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
address = f"http://127.0.0.1:{server.server_port}"
model = ChatOpenAI(model="m", api_key="none", base_url=address, max_retries=0, stream_usage=True)
streamed = reduce(add, model.stream("Hi"))
whole = model.invoke("Hi")
seen = [(reply.content, reply.usage_metadata["input_tokens"], reply.usage_metadata["output_tokens"]) for reply in (streamed, whole)]
print(seen)
assert seen == [("ABC", 500, 12), ("ABC", 100, 3)], f"it has changed: {seen!r}"
PY
# Output of 2026-11-29:
# [('ABC', 500, 12), ('ABC', 100, 3)]
