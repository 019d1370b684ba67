#!/usr/bin/env bash
# AT max_iterations, THE TOOL RUNNER RUNS CALLS WHOSE RESULTS NOBODY READS, AND IN PYTHON RUNS THEM AGAIN FOR WHO ASKS FOR THE RESULTS:
# the last message comes back with stop_reason "tool_use", as if its calls were still to be made. They have been.
#
# Software:  anthropic 2.11.0 (PyPI), @anthropic-ai/sdk 1.14.0 (npm)
# Expected:  the limit counts requests, so the calls of the last reply, which no request will tell of, are left to the caller; or,
#            if they have run, generate_tool_call_response() returns what they gave: it says "the tool call response is cached,
#            repeated calls to this method will return the same response"
# Seen:      both SDKs run the last reply's calls and return that reply. Python's generate_tool_call_response() then runs them
#            once more: one call of the model, two payments. TypeScript's generateToolResponse() returns the result of the first
# It matters to: who bounds the runner and then goes on by stop_reason "tool_use", by hand or with the SDK's method. Keep the
#            results in the tool (by tool_use id), or break out of the loop yourself and count there
set -euo pipefail
folder=$(mktemp -d)
server=0
trap '[ "$server" = 0 ] || kill "$server" 2>/dev/null || true; rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "anthropic==2.11.0" || exit 2
(cd "$folder" && npm install --silent --no-audit --no-fund "@anthropic-ai/sdk@1.14.0") || exit 2
cat > "$folder/model.py" <<'PY'
import json, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

class Model(BaseHTTPRequestHandler):
    def log_message(self, *_): ...
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        call = {"type": "tool_use", "id": "toolu_1", "name": "pay", "input": {"amount": 5}}
        body = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [call], "stop_reason": "tool_use",
                "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}}
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

server = HTTPServer(("127.0.0.1", 0), Model)
print(server.server_port, flush=True)
server.serve_forever()
PY
timeout 120 python3 "$folder/model.py" > "$folder/port" &
server=$!
until [ -s "$folder/port" ]; do sleep 0.1; done
cat > "$folder/run.py" <<'PY'
import sys
from anthropic import Anthropic, beta_tool

paid = []

@beta_tool
def pay(amount: int) -> str:
    """Pays.

    Args:
        amount: How much
    """
    paid.append(amount)
    return "paid"

client = Anthropic(api_key="not-a-key", base_url=f"http://127.0.0.1:{sys.argv[1]}")
question = [{"role": "user", "content": "Pay 5."}]
runner = client.beta.messages.tool_runner(model="m", max_tokens=99, messages=question, tools=[pay], max_iterations=1)
last = runner.until_done()
first = len(paid)
result = runner.generate_tool_call_response()["content"][0]
print(f"{last.stop_reason}, paid {first} time(s); after asking for the result {result['content']!r}: {len(paid)}")
PY
cat > "$folder/run.mjs" <<'JS'
import Anthropic from "@anthropic-ai/sdk";
const client = new Anthropic({ apiKey: "not-a-key", baseURL: `http://127.0.0.1:${process.argv[2]}` });
const paid = [];
const input_schema = { type: "object", properties: { amount: { type: "integer" } }, required: ["amount"] };
const run = ({ amount }) => (paid.push(amount), "paid");
const pay = { name: "pay", description: "Pays.", input_schema, parse: (input) => input, run };
const messages = [{ role: "user", content: "Pay 5." }];
const runner = client.beta.messages.toolRunner({ model: "m", max_tokens: 99, messages, tools: [pay], max_iterations: 1 });
const last = await runner;
const first = paid.length;
const result = (await runner.generateToolResponse()).content[0];
console.log(`${last.stop_reason}, paid ${first} time(s); after asking for the result '${result.content}': ${paid.length}`);
JS
python=$(timeout 60 "$folder/venv/bin/python" "$folder/run.py" "$(cat "$folder/port")")
node=$(timeout 60 node "$folder/run.mjs" "$(cat "$folder/port")")
printf 'Python:     %s\nTypeScript: %s\n' "$python" "$node"
[ "$python" = "tool_use, paid 1 time(s); after asking for the result 'paid': 2" ] || { echo "it has changed"; exit 1; }
[ "$node" = "tool_use, paid 1 time(s); after asking for the result 'paid': 1" ] || { echo "it has changed"; exit 1; }
# Output of 2026-11-28:
# Python:     tool_use, paid 1 time(s); after asking for the result 'paid': 2
# TypeScript: tool_use, paid 1 time(s); after asking for the result 'paid': 1
