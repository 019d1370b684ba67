#!/usr/bin/env bash
# LANGCHAIN LOSES A REFUSAL THAT IS STREAMED: what is left is an empty answer that ended well.
#
# Software:  langchain-openai 1.7.4 (PyPI)
# Expected:  the words of `delta.refusal` are in the reply, as `message.refusal` of the same reply whole is
# Seen:      whole, additional_kwargs["refusal"] has them; streamed, they are nowhere: no content, finish_reason "stop"
# It matters to: who streams with structured outputs, where OpenAI's models refuse in this field: an empty content with
#            "stop" is to be taken for a refusal, or asked again without a stream
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

KNOWN = {"id": "c", "created": 1, "model": "m"}


def chunk(finish: str | None = None, **delta: str) -> dict:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {**KNOWN, "object": "chat.completion.chunk", "choices": [choice]}


CHUNKS = [chunk(role="assistant", refusal="I can't "), chunk(refusal="help."), chunk("stop")]
MESSAGE = {"role": "assistant", "content": None, "refusal": "I can't help."}
WHOLE = {**KNOWN, "object": "chat.completion", "choices": [{"index": 0, "message": MESSAGE, "finish_reason": "stop"}]}


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
seen = [(reply.content, reply.additional_kwargs, reply.response_metadata["finish_reason"]) for reply in (streamed, whole)]
print(seen)
assert seen == [("", {}, "stop"), ("", {"refusal": "I can't help."}, "stop")], f"it has changed: {seen!r}"
PY
# Output of 2026-11-29:
# [('', {}, 'stop'), ('', {'refusal': "I can't help."}, 'stop')]
