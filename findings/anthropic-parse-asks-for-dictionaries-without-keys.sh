#!/usr/bin/env bash
# ANTHROPIC'S PARSE ASKS FOR DICTIONARIES WITHOUT KEYS: a field of type dict[str, int] can only be answered with {}.
#
# Software:  anthropic 2.14.0, pydantic 2.14.4 (PyPI)
# Expected:  messages.parse(output_format=) refuses a model that its grammars can't express, or sends the schema as
#            pydantic writes it (`additionalProperties: {"type": "integer"}`), for the server to refuse: OpenAI's does
# Seen:      it sends `properties: {}` and `additionalProperties: false`, without a word: a model that is held to that
#            can only answer {}, which fits dict[str, int], too. What was asked for is lost in a valid answer
# It matters to: who parses answers into models with dictionaries or open objects: have lists of pairs instead, or put
#            the schema into the prompt. `anthropic.transform_schema` alone does the same
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "anthropic==2.14.0" "pydantic==2.14.4" || exit 2
"$folder/venv/bin/python" -W error - <<'PY'
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from anthropic import Anthropic
from pydantic import BaseModel


class Order(BaseModel):
    customer: str
    quantities: dict[str, int]


sent = []


class Claude(BaseHTTPRequestHandler):
    """It answers as the schema lets it: by the rule that each key has to be listed, and none is."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        schema = body["output_config"]["format"]["schema"]
        sent.append(schema)
        quantities = schema["properties"]["quantities"]
        can_have_keys = quantities["properties"] or quantities["additionalProperties"] is not False
        answer = {"customer": "Ada", "quantities": {"lamp": 2} if can_have_keys else {}}
        reply = json.dumps(
            {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "model": body["model"],
                "content": [{"type": "text", "text": json.dumps(answer)}],
                "stop_reason": "end_turn",
                "stop_sequence": None,
                "usage": {"input_tokens": 1, "output_tokens": 1},
            }
        ).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, *_):
        pass


server = HTTPServer(("127.0.0.1", 0), Claude)
threading.Thread(target=server.serve_forever, daemon=True).start()
client = Anthropic(api_key="none", base_url=f"http://127.0.0.1:{server.server_port}", max_retries=0)
message = client.messages.parse(
    model="claude-opus-5-5",
    max_tokens=1000,
    messages=[{"role": "user", "content": "Ada orders two lamps."}],
    output_format=Order,
)
print("pydantic:", json.dumps(Order.model_json_schema()["properties"]["quantities"]))
print("sent:    ", json.dumps(sent[0]["properties"]["quantities"]))
print("parsed:  ", message.parsed_output)
assert sent[0]["properties"]["quantities"]["properties"] == {}, "it has changed"
assert sent[0]["properties"]["quantities"]["additionalProperties"] is False, "it has changed"
assert message.parsed_output.quantities == {}, "it has changed"
PY
# Output of 2026-11-28:
# pydantic: {"additionalProperties": {"type": "integer"}, "title": "Quantities", "type": "object"}
# sent:     {"type": "object", "title": "Quantities", "properties": {}, "additionalProperties": false}
# parsed:   customer='Ada' quantities={}
