#!/usr/bin/env bash
# OPENAI'S AND ANTHROPIC'S SDKS CREATE A BATCH ONCE MORE IF ITS ANSWER IS LOST: one call, two batches, both are paid.
#
# Software:  openai 3.57.0, anthropic 2.14.0 (PyPI)
# Expected:  batches.create() is retried with a key that makes it idempotent, or not at all after it was sent: it begins
#            work of hours that nobody can take back
# Seen:      the connection breaks after the request was read: both clients send it again by default (max_retries=2),
#            with no idempotency key; the caller is told of the second batch, and of the first by nobody
# It matters to: who sends batches: set max_retries=0 for the creation, and look for the batch before sending it again
#            (OpenAI lists metadata; Anthropic's batches have no name)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "openai==3.57.0" "anthropic==2.14.0" || exit 2
"$folder/venv/bin/python" - <<'PY'
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import anthropic
import openai

COUNTS = {"processing": 1, "succeeded": 0, "errored": 0, "canceled": 0, "expired": 0}
KINDS = {
    "/v1/batches": {
        "id": "batch_{}",
        "object": "batch",
        "endpoint": "/v1/responses",
        "input_file_id": "file-1",
        "completion_window": "24h",
        "status": "validating",
        "created_at": 1,
    },
    "/v1/messages/batches": {
        "id": "msgbatch_{}",
        "type": "message_batch",
        "processing_status": "in_progress",
        "request_counts": COUNTS,
        "created_at": "2026-11-27T00:00:00Z",
        "expires_at": "2026-11-28T00:00:00Z",
    },
}
created: list[str] = []
keys: list[str] = []


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        path = self.path.partition("?")[0]
        keys.extend(name for name in self.headers if "idempotency" in name.lower())
        number = sum(path == other for other in created) + 1
        created.append(path)
        if number == 1:  # it is created, and the answer is lost
            return
        body = json.dumps({**KINDS[path], "id": KINDS[path]["id"].format(number)}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


server = HTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}"
batches = openai.OpenAI(api_key="none", base_url=f"{url}/v1").batches
first = batches.create(input_file_id="file-1", endpoint="/v1/responses", completion_window="24h")
request = {"model": "claude-opus-5-5", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
second = anthropic.Anthropic(api_key="none", base_url=url).messages.batches.create(
    requests=[{"custom_id": "a", "params": request}]
)
seen = f"told of {first.id} and {second.id}; created {len(created)}; idempotency keys {len(keys)}"
print(seen)
assert seen == "told of batch_2 and msgbatch_2; created 4; idempotency keys 0", f"it has changed: {seen!r}"
PY
# Output of 2026-11-27:
# told of batch_2 and msgbatch_2; created 4; idempotency keys 0
