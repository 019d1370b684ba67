#!/usr/bin/env bash
# An MCP server's own error -32000 is what both official SDKs' clients say when the connection has closed.
#
# Software:  mcp 2.3.0 (PyPI), @modelcontextprotocol/sdk 1.32.2 (npm)
# Expected:  -32000 to -32099 belong to the server's implementation (JSON-RPC 2.0, 5.1), and many servers answer with -32000
#            for errors of their own: a client should be able to tell that from the end of its connection
# Seen:      CONNECTION_CLOSED is -32000 in the Python SDK, ErrorCode.ConnectionClosed in TypeScript's; the exception of a
#            server's quota error has that very code, while the connection lives and takes the next call
# It matters to: clients that reconnect on that code: they end a healthy server's program, and whatever else it is doing
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "mcp==2.3.0" || exit 2
echo '{"private": true, "type": "module"}' > "$folder/package.json"
(cd "$folder" && npm install --silent --no-audit --no-fund @modelcontextprotocol/sdk@1.32.2) || exit 2
cat > "$folder/server.py" <<'PY'
import json
import sys

for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    answer = {"error": {"code": -32601, "message": "Method not found"}}
    if message["method"] == "initialize":
        info = {"name": "a", "version": "1"}
        answer = {"result": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}}
    elif message["method"] == "tools/list":
        answer = {"result": {"tools": []}}
    elif message["method"] == "tools/call":
        answer = {"error": {"code": -32000, "message": "Monthly quota exceeded"}}
        if message["params"]["name"] == "hello":
            answer = {"result": {"content": [{"type": "text", "text": "still here"}]}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
PY
cat > "$folder/client.py" <<'PY'
import asyncio
import sys

from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters
from mcp.types import CONNECTION_CLOSED


async def main():
    async with Client(StdioServerParameters(command=sys.executable, args=[sys.argv[1]]), mode="legacy") as client:
        try:
            await client.call_tool("pay", {})
        except MCPError as error:
            code = error.code
        after = (await client.call_tool("hello", {})).content[0].text
    print(f"python: closed is {CONNECTION_CLOSED}, quota is {code}, then {after!r}")


asyncio.run(main())
PY
cat > "$folder/client.mjs" <<'JS'
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { ErrorCode } from "@modelcontextprotocol/sdk/types.js";

const client = new Client({ name: "a", version: "1" });
await client.connect(new StdioClientTransport({ command: process.argv[2], args: [process.argv[3]] }));
let code;
try {
  await client.callTool({ name: "pay", arguments: {} });
} catch (error) {
  code = error.code;
}
const after = (await client.callTool({ name: "hello", arguments: {} })).content[0].text;
console.log(`typescript: closed is ${ErrorCode.ConnectionClosed}, quota is ${code}, then '${after}'`);
await client.close();
JS
seen="$("$folder/venv/bin/python" "$folder/client.py" "$folder/server.py")
$(cd "$folder" && node client.mjs "$folder/venv/bin/python" "$folder/server.py")"
echo "$seen"
[ "$seen" = "python: closed is -32000, quota is -32000, then 'still here'
typescript: closed is -32000, quota is -32000, then 'still here'" ] || { echo "it has changed"; exit 1; }
# Output of 2026-11-27:
# python: closed is -32000, quota is -32000, then 'still here'
# typescript: closed is -32000, quota is -32000, then 'still here'
