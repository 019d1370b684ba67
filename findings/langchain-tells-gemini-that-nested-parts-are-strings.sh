#!/usr/bin/env bash
# LANGCHAIN TELLS GEMINI THAT A TREE'S PARTS ARE STRINGS, and that what an inner object leaves open is required.
#
# Software:  langchain-google-genai 4.4.3, langchain-core 1.8.3, pydantic 2.14.4 (PyPI)
# Expected:  a tool that takes a model which holds itself (`parts: list["Part"]`) is declared so (Gemini takes `$ref` in
#            parametersJsonSchema), or refused; what an inner object does not require stays optional
# Seen:      the inner `$ref` is declared as {"type": "STRING"}, so the model writes names, and the call fails
#            when pydantic reads it; of an object that requires nothing, as in MCP tools' filters, every field is
#            required, so the model makes up values. Both without an error
# It matters to: who gives LangChain agents on Gemini tools with trees, or MCP tools: look at what is declared, and hand
#            trees over as a text
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "langchain-google-genai==4.4.3" \
    "langchain-core==1.8.3" "pydantic==2.14.4" || exit 2
"$folder/venv/bin/python" - <<'PY' 2>/dev/null
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from langchain_core.tools import StructuredTool, tool
from langchain_google_genai import ChatGoogleGenerativeAI
from pydantic import BaseModel


class Part(BaseModel):
    name: str
    parts: list["Part"] = []


@tool
def build(part: Part) -> str:
    """Builds a thing of its parts."""
    return part.name


FILTER = {"type": "object", "properties": {"city": {"type": "string"}, "street": {"type": "string"}}}
SEARCH = {"type": "object", "properties": {"where": FILTER}, "required": ["where"]}
search = StructuredTool(name="search", description="As an MCP server lists it.", args_schema=SEARCH, func=print)

declared = {}
ANSWER = {"candidates": [{"content": {"role": "model", "parts": [{"text": "Hi."}]}, "finishReason": "STOP"}]}


class Gemini(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        for entry in body["tools"]:
            for function in entry["functionDeclarations"]:
                declared[function["name"]] = function["parameters"]["properties"]
        answer = json.dumps(ANSWER).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


server = HTTPServer(("127.0.0.1", 0), Gemini)
threading.Thread(target=server.serve_forever, daemon=True).start()
address = f"http://127.0.0.1:{server.server_port}"
model = ChatGoogleGenerativeAI(model="gemini-3-pro", google_api_key="none", base_url=address, max_retries=1)
model.bind_tools([build, search]).invoke("Build a lamp.")
parts = declared["build"]["part"]["properties"]["parts"]
print("parts:   ", json.dumps(parts))
print("required:", declared["search"]["where"].get("required"))
assert parts["items"] == {"type": "STRING"}, f"it has changed: {parts}"
assert declared["search"]["where"].get("required") == ["city", "street"], "it has changed"
PY
# Output of 2026-11-28:
# parts:    {"items": {"type": "STRING"}, "type": "ARRAY"}
# required: ['city', 'street']
