#!/usr/bin/env bash
# OPENAI'S STREAM HELPER HAS NO FINAL RESPONSE FOR ONE THAT WAS CUT: its text and its usage are there, and not to be had.
#
# Software:  openai 3.57.0 (PyPI)
# Expected:  after a stream that ends with response.incomplete (max_output_tokens, content_filter), get_final_response()
#            gives that response, with its status, as responses.create() does for the same request without a stream
# Seen:      RuntimeError("Didn't receive a `response.completed` event."), though the event with the whole response came
# It matters to: who counts tokens or reads `incomplete_details` after responses.stream(): a reply that met its limit is
#            paid and looks like a broken connection; take the response from the event itself
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "openai==3.57.0" || exit 2
"$folder/venv/bin/python" - <<'PY'
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from openai import OpenAI

TEXT = {"type": "output_text", "text": "Half an", "annotations": []}
ITEM = {"id": "msg_1", "type": "message", "role": "assistant", "status": "incomplete", "content": [TEXT]}
KNOWN = {"id": "resp_1", "object": "response", "created_at": 1, "model": "gpt-6", "tools": [], "tool_choice": "auto"}
USAGE = {"input_tokens": 5, "output_tokens": 16, "total_tokens": 21}
USAGE |= {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
CUT = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}, "output": [ITEM], "usage": USAGE}
OF_ITEM = {"output_index": 0, "item_id": "msg_1", "content_index": 0}
EVENTS = [
    {"type": "response.created", "response": {**KNOWN, "status": "in_progress", "output": []}},
    {"type": "response.output_item.added", "output_index": 0, "item": {**ITEM, "content": []}},
    {"type": "response.content_part.added", **OF_ITEM, "part": {**TEXT, "text": ""}},
    {"type": "response.output_text.delta", **OF_ITEM, "delta": "Half an", "logprobs": []},
    {"type": "response.incomplete", "response": {**KNOWN, **CUT, "parallel_tool_calls": True}},
]
EVENTS = [{**event, "sequence_number": number} for number, event in enumerate(EVENTS)]
asked: list[object] = []


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        asked.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for event in EVENTS:
            self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())

    def log_message(self, *_: object) -> None: ...


server = HTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
client = OpenAI(api_key="none", base_url=f"http://127.0.0.1:{server.server_port}", max_retries=0)
with client.responses.stream(model="gpt-6", input="Hi", max_output_tokens=16) as stream:
    last = [event for event in stream][-1]
    seen = f"{last.type}: {last.response.output_text!r}, {last.response.usage.total_tokens} tokens; final: "
    try:
        seen += stream.get_final_response().status
    except RuntimeError as error:
        seen += f"RuntimeError({error})"
print(seen)
wanted = "response.incomplete: 'Half an', 21 tokens; final: RuntimeError(Didn't receive a `response.completed` event.)"
assert seen == wanted, f"it has changed: {seen!r}"
PY
# Output of 2026-11-29:
# response.incomplete: 'Half an', 21 tokens; final: RuntimeError(Didn't receive a `response.completed` event.)
