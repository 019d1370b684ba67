#!/usr/bin/env bash
# GOOGLE-GENAI'S CHAT FORGETS THE RESULT OF A FUNCTION THAT IT RAN if the model says nothing after it: the next message goes out
# with the call and without its result.
#
# Software:  google-genai 3.6.1 (PyPI)
# Expected:  a chat with automatic function calling remembers what it did: call and result are both in the next request, or, if
#            the turn counts as void because its last reply is empty, neither is
# Seen:      the function ran, and the empty reply (STOP without parts, which Gemini sends now and then; MAX_TOKENS after thoughts
#            alone) is left out together with the content before it, which is the function's result. The history that is sent ends
#            with the call: a request that the API refuses ("number of function response parts ..."), in this turn and in every
#            later one, or, where it is let pass, a model that may call again. get_history() shows all of it; what is
#            sent is get_history(curated=True)
# It matters to: chats whose functions have effects. Look at response.text; if there is none, begin a new chat with get_history()
#            without its last content
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "google-genai==3.6.1" || exit 2
timeout 60 "$folder/venv/bin/python" - <<'PY'
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from google import genai
from google.genai import types

CALL = {"functionCall": {"name": "pay_invoice", "args": {"number": "17"}}}
REQUESTS: list[dict] = []
replies: list[tuple[list, str]] = []


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        REQUESTS.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        parts, reason = replies.pop(0)
        body = {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": reason, "index": 0}]}
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None: ...


server = HTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
address = types.HttpOptions(base_url=f"http://127.0.0.1:{server.server_port}")
client = genai.Client(api_key="none", http_options=address)
paid = []


def pay_invoice(number: str) -> str:
    """Pays an invoice."""
    paid.append(number)
    return "paid"


seen = {}
config = types.GenerateContentConfig(tools=[pay_invoice])
for name, last in {"Done.": ([{"text": "Done."}], "STOP"), "": ([], "STOP"), "cut": ([], "MAX_TOKENS")}.items():
    replies[:] = [([CALL], "STOP"), last, ([{"text": "Yes."}], "STOP")]
    chat = client.chats.create(model="gemini-4-argon", config=config)
    chat.send_message("Pay invoice 17.")
    chat.send_message("Did you pay it?")
    seen[name] = [next(iter(content["parts"][0])) for content in REQUESTS[-1]["contents"]]
    print(f"the model's last words: {name!r}; contents of the next request: {seen[name]}; all: {len(chat.get_history())}")
assert paid == ["17", "17", "17"], paid
assert seen["Done."] == ["text", "functionCall", "functionResponse", "text", "text"], f"it has changed: {seen}"
assert seen[""] == seen["cut"] == ["text", "functionCall", "text"], f"it has changed: {seen}"
PY
# Output of 2026-11-28:
# the model's last words: 'Done.'; contents of the next request: ['text', 'functionCall', 'functionResponse', 'text', 'text']; all: 6
# the model's last words: ''; contents of the next request: ['text', 'functionCall', 'text']; all: 6
# the model's last words: 'cut'; contents of the next request: ['text', 'functionCall', 'text']; all: 6
