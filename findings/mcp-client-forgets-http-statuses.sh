#!/usr/bin/env bash
# The Python MCP client turns 401, 429 and 503 into one and the same error, without the status.
#
# Software:  mcp 2.3.0 (PyPI)
# Expected:  the HTTP status (and Retry-After) somewhere in the exception: a wrong token and a rate limit need other cures
# Seen:      each is MCPError -32603 "Server returned an error response", with no data; that is also the code of a failure
#            inside a tool, after its effect
# It matters to: whoever retries MCP calls, or shows their errors, behind a gateway: look at the response in a transport of
#            one's own (`http_client=`), before the SDK does
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "mcp==2.3.0" || exit 2
"$folder/venv/bin/python" - <<'PY'
import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from mcp import Client, MCPError

STATUSES = [401, 429, 503]


class Gateway(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_): ...

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        method, status, body = message["method"], 200, {"jsonrpc": "2.0", "id": message.get("id")}
        if method == "initialize":
            info = {"name": "a", "version": "1"}
            body["result"] = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
        elif method == "tools/call":
            status, body = STATUSES[int(message["params"]["name"])], {"error": "see the status"}
        elif "id" in message:
            body["result"] = {"tools": []}
        data = json.dumps(body).encode()
        self.send_response(status if "id" in message else 202)
        for name, value in {"content-type": "application/json", "retry-after": "7", "content-length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self.send_error(405)

    do_DELETE = do_GET


server = ThreadingHTTPServer(("127.0.0.1", 0), Gateway)
threading.Thread(target=server.serve_forever, daemon=True).start()


async def main():
    seen = []
    async with Client(f"http://127.0.0.1:{server.server_port}/mcp", mode="legacy") as client:
        for number, status in enumerate(STATUSES):
            try:
                await client.call_tool(str(number), {})
            except MCPError as error:
                seen.append((status, error.code, error.message, error.data))
    for row in seen:
        print(*row)
    same = (-32603, "Server returned an error response", None)
    assert seen == [(status, *same) for status in STATUSES], f"it has changed: {seen!r}"


asyncio.run(main())
PY
# Output of 2026-11-27:
# 401 -32603 Server returned an error response None
# 429 -32603 Server returned an error response None
# 503 -32603 Server returned an error response None
