#!/usr/bin/env bash
# OPENAI'S SDK GIVES NO ERROR FOR A STREAM WHOSE ERROR IS NOT IN `data`: the loop over its chunks just ends, after none. Two
# servers send such streams with status 200: llama.cpp until September 2025 (`error: {...}`, its pull request 16109), and
# Lemonade 11.5.0 in front of any llama.cpp (the object alone on its line, its issue 2826), each for a prompt that is too long.
#
# Software:  openai 3.52.0 (PyPI)
# Expected:  an exception, as for `data: {"error": ...}`, or for a stream that says nothing at all
# Seen:      no chunk and no exception; only the form with `data` raises
# It matters to: agents on local servers: a prompt that has become too long looks like a model that has nothing to say. Look for
#            a finish_reason, and take its lack for a failure
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "openai==3.52.0" || exit 2
"$folder/venv/bin/python" - <<'PY'
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
import openai

ERROR = '{"code":400,"message":"the request exceeds the available context size","type":"exceed_context_size_error"}'
STREAMS = {
    "field": f"error: {ERROR}\n\ndata: [DONE]\n\n",
    "bare": f'{{"error":{ERROR}}}\n',
    "data": f'data: {{"error":{ERROR}}}\n\n',
    "nothing": "data: [DONE]\n\n",
}

class Server(BaseHTTPRequestHandler):
    def log_message(self, *_): ...
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        body = STREAMS[self.path.split("/")[1]].encode()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

server = HTTPServer(("127.0.0.1", 0), Server)
threading.Thread(target=server.serve_forever, daemon=True).start()
seen = {}
for name in STREAMS:
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.server_port}/{name}", api_key="none", max_retries=0)
    try:
        stream = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "?"}], stream=True)
        seen[name] = f"{len(list(stream))} chunks"
    except openai.APIError as error:
        seen[name] = type(error).__name__
print(seen)
expected = {"field": "0 chunks", "bare": "0 chunks", "data": "APIError", "nothing": "0 chunks"}
assert seen == expected, f"it has changed: {seen}"
PY
# Output of 2026-11-27:
# {'field': '0 chunks', 'bare': '0 chunks', 'data': 'APIError', 'nothing': '0 chunks'}
