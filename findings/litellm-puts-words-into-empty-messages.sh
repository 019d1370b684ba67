#!/usr/bin/env bash
# LITELLM HAS CLAUDE READ WORDS THAT NOBODY WROTE in place of an empty message, as the assistant's own or as the user's: "[System: Empty
# message content sanitised to satisfy protocol]". modify_params is off.
#
# Software:  litellm 1.110.2 (PyPI)
# Expected:  an empty message is left out, or Anthropic's error comes through ("text content blocks must be non-empty"): changing
#            messages is what litellm.modify_params is for, which is False unless somebody sets it
# Seen:      an assistant's "" becomes these words, and so do a user's blank and an empty part before a part with text; the same
#            message with null for content is left out. Beside tool calls an empty content is left out, too
# It matters to: agents whose model ends a turn without words (after a tool that only acts, say): from then on the transcript has
#            it talk of its system, and models pick that up. Send null, or leave such messages out, before LiteLLM
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "litellm==1.110.2" || exit 2
LITELLM_LOCAL_MODEL_COST_MAP=True timeout 100 "$folder/venv/bin/python" - <<'PY'
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import litellm

REPLY = {"id": "m", "type": "message", "role": "assistant", "model": "claude-opus-5-5", "stop_reason": "end_turn"}
REPLY |= {"content": [{"type": "text", "text": "Hi."}], "usage": {"input_tokens": 1, "output_tokens": 1}}
requests = []


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        requests.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        data = json.dumps(REPLY).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None: ...


server = HTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
address = f"http://127.0.0.1:{server.server_port}"


def sent(name: str, *messages: dict) -> list[str]:
    litellm.completion("anthropic/claude-opus-5-5", [*messages], api_key="none", api_base=address)
    texts = [f"{m['role']}: {block['text']}" for m in requests[-1]["messages"] for block in m["content"]]
    print(f"{name}: {texts}")
    return texts


assert litellm.modify_params is False
first, second = ({"role": "user", "content": text} for text in ("Turn it on.", "Is it on?"))
words = "[System: Empty message content sanitised to satisfy protocol]"
empty = sent("an assistant's empty text", first, {"role": "assistant", "content": ""}, second)
null = sent("an assistant's null", first, {"role": "assistant", "content": None}, second)
blank = sent("a user's blank", {"role": "user", "content": " "})
assert empty == ["user: Turn it on.", f"assistant: {words}", "user: Is it on?"], f"it has changed: {empty}"
assert null == ["user: Turn it on.", "user: Is it on?"], f"it has changed: {null}"
assert blank == [f"user: {words}"], f"it has changed: {blank}"
PY
# Output of 2026-11-28:
# an assistant's empty text: ['user: Turn it on.', 'assistant: [System: Empty message content sanitised to satisfy protocol]', 'user: Is it on?']
# an assistant's null: ['user: Turn it on.', 'user: Is it on?']
# a user's blank: ['user: [System: Empty message content sanitised to satisfy protocol]']
