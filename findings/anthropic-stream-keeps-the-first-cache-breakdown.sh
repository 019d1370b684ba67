#!/usr/bin/env bash
# ANTHROPIC'S STREAM HELPER KEEPS THE FIRST BREAKDOWN OF CACHE WRITES: the total moves on, its parts do not.
#
# Software:  anthropic 2.14.0 (PyPI)
# Expected:  in the final message of messages.stream(), usage.cache_creation (5 minutes, one hour) adds up to
#            usage.cache_creation_input_tokens, or is absent
# Seen:      message_delta carries a new total, as after a loop of server tools, and no breakdown; the helper takes the
#            total and leaves the breakdown of message_start beside it: 1,000 written in all, 400 of them in its parts
# It matters to: who prices cache writes by the breakdown (one hour costs 1.6 times five minutes): price what the parts
#            leave over as well
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "anthropic==2.14.0" || exit 2
"$folder/venv/bin/python" - <<'PY'
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from anthropic import Anthropic

STARTED = {"input_tokens": 10, "output_tokens": 1, "cache_creation_input_tokens": 400, "cache_read_input_tokens": 0}
STARTED["cache_creation"] = {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 400}
ENDED = {"input_tokens": 12, "output_tokens": 7, "cache_creation_input_tokens": 1_000, "cache_read_input_tokens": 0}
MESSAGE = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-opus-5-5", "content": []}
EVENTS = [
    {"type": "message_start", "message": {**MESSAGE, "stop_reason": None, "stop_sequence": None, "usage": STARTED}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi."}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": ENDED},
    {"type": "message_stop"},
]


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for event in EVENTS:
            self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())

    def log_message(self, *_: object) -> None: ...


server = HTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
client = Anthropic(api_key="none", base_url=f"http://127.0.0.1:{server.server_port}", max_retries=0)
asked = [{"role": "user", "content": "Hi"}]
with client.messages.stream(model="claude-opus-5-5", max_tokens=9, messages=asked) as stream:
    usage = stream.get_final_message().usage
parts = usage.cache_creation.ephemeral_5m_input_tokens + usage.cache_creation.ephemeral_1h_input_tokens
seen = f"written in all: {usage.cache_creation_input_tokens}; in its parts: {parts}"
print(seen)
assert seen == "written in all: 1000; in its parts: 400", f"it has changed: {seen!r}"
PY
# Output of 2026-11-27:
# written in all: 1000; in its parts: 400
