#!/usr/bin/env bash
# GOOGLE-GENAI'S CHAT KEEPS A STREAMED REPLY AS ONE CONTENT FOR EACH CHUNK: calls made at once are sent back as turns.
#
# Software:  google-genai 3.6.1 (PyPI)
# Expected:  after chat.send_message_stream(), the history has one content of the model for its reply, as after
#            chat.send_message(), and the next request sends that
# Seen:      two parallel calls that came in two chunks, of which Gemini signs the first only, are two contents of the
#            model, and the empty text that ended the stream is a third: the second call is a step without a signature
# It matters to: who streams with Gemini 3, which refuses the first call of a step without its thought_signature: put the
#            parts of a reply together before they go back
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "google-genai==3.6.1" || exit 2
"$folder/venv/bin/python" - <<'PY'
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from google import genai

PARTS = [
    {"functionCall": {"name": "rome", "args": {}}, "thoughtSignature": "c2ln"},
    {"functionCall": {"name": "oslo", "args": {}}},
    {"text": ""},
]
EVENTS = [{"candidates": [{"content": {"role": "model", "parts": [part]}}]} for part in PARTS]
EVENTS[-1]["candidates"][0]["finishReason"] = "STOP"
asked: list[dict] = []


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
client = genai.Client(api_key="none", http_options={"base_url": f"http://127.0.0.1:{server.server_port}"})
chat = client.chats.create(model="gemini-3.5-flash")
for _ in range(2):
    list(chat.send_message_stream("Hi"))
seen = [(content["role"], [name for part in content["parts"] for name in sorted(part)]) for content in asked[1]["contents"]]
for role, names in seen:
    print(role, names)
assert seen == [
    ("user", ["text"]),
    ("model", ["functionCall", "thoughtSignature"]),
    ("model", ["functionCall"]),
    ("model", ["text"]),
    ("user", ["text"]),
], f"it has changed: {seen!r}"
PY
# Output of 2026-11-29:
# user ['text']
# model ['functionCall', 'thoughtSignature']
# model ['functionCall']
# model ['text']
# user ['text']
