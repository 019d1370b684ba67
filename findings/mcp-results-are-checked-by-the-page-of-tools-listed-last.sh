#!/usr/bin/env bash
# WHETHER AN MCP CLIENT CHECKS A RESULT AGAINST ITS TOOL'S outputSchema DEPENDS ON WHICH PAGE OF TOOLS IT READ LAST: one and the same
# call passes, or fails after its effect.
#
# Software:  @modelcontextprotocol/sdk 1.32.2, @modelcontextprotocol/client 2.4.0 (npm), mcp 2.3.0 (PyPI)
# Expected:  "clients SHOULD validate structured results against this schema": each result, or none
# Seen:      the TypeScript SDK keeps the schemas of the page that listTools() brought last, and forgets all others: of a server with
#            two pages, results of the first page's tools are never checked once both are read, and those of the second page's
#            are; read page one again, and it is the other way round. Its version 2 keeps all, and checks nothing that was not
#            listed. The Python client lists by itself before it checks, but only the first page: what stands on the second
#            one passes, with a line in the log, until somebody has listed that page
# It matters to: whoever counts on that check (a program that takes structuredContent as it is), and servers whose schema does not quite
#            fit: a call that worked for months fails once a client refreshes its list, and it has run by then. Check the
#            result yourself, by a schema that you keep
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "mcp==2.3.0" || exit 2
echo '{"private": true, "type": "module"}' > "$folder/package.json"
(cd "$folder" && npm install --silent --no-audit --no-fund @modelcontextprotocol/sdk@1.32.2 \
  @modelcontextprotocol/client@2.4.0) || exit 2
cat > "$folder/server.py" <<'PY'
import json
import sys

SCHEMA = {"type": "object", "properties": {"degrees": {"type": "integer"}}, "required": ["degrees"]}
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    answer = {"error": {"code": -32601, "message": "Method not found"}}
    if message["method"] == "initialize":
        info = {"name": "weather", "version": "1"}
        answer = {"result": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}}
    elif message["method"] == "tools/list":
        on_second = "cursor" in (message.get("params") or {})
        tool = {"name": "second" if on_second else "first", "inputSchema": {"type": "object"}, "outputSchema": SCHEMA}
        answer = {"result": {"tools": [tool]} | ({} if on_second else {"nextCursor": "2"})}
    elif message["method"] == "tools/call":
        content = [{"type": "text", "text": "warm"}]
        answer = {"result": {"content": content, "structuredContent": {"degrees": "warm"}}}  # no integer
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
PY
cat > "$folder/client.mjs" <<'JS'
const [version, python, server] = process.argv.slice(2);
const names = { 1: ["sdk/client/index.js", "sdk/client/stdio.js"], 2: ["client", "client/stdio"] }[version];
const { Client } = await import(`@modelcontextprotocol/${names[0]}`);
const { StdioClientTransport } = await import(`@modelcontextprotocol/${names[1]}`);
const client = new Client({ name: "c", version: "1" });
await client.connect(new StdioClientTransport({ command: python, args: [server] }));
const call = (name) => client.callTool({ name, arguments: {} }).then(() => "passes", () => "fails");
const calls = async () => `${await call("first")} ${await call("second")}`;
const seen = [await calls()];
const page = await client.listTools();
if (version === "1") await client.listTools({ cursor: page.nextCursor }); // version 2 reads all pages by itself
seen.push(await calls());
await client.listTools();
seen.push(await calls());
await client.close();
console.log(JSON.stringify(seen));
JS
cat > "$folder/client.py" <<'PY'
import asyncio
import json
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.types import PaginatedRequestParams


async def main() -> None:
    server = StdioServerParameters(command=sys.executable, args=[sys.argv[1]])
    async with stdio_client(server) as streams, ClientSession(*streams) as session:
        await session.initialize()

        async def call(name: str) -> str:
            try:
                await session.call_tool(name, {})
            except RuntimeError:
                return "fails"
            return "passes"

        async def calls() -> str:
            return f"{await call('first')} {await call('second')}"

        seen = [await calls()]
        await session.list_tools(params=PaginatedRequestParams(cursor="2"))
        seen.append(await calls())
        await session.list_tools()
        seen.append(await calls())
        print(json.dumps(seen))


asyncio.run(main())
PY
python="$folder/venv/bin/python"
ts1=$(cd "$folder" && timeout 60 node client.mjs 1 "$python" server.py)
ts2=$(cd "$folder" && timeout 60 node client.mjs 2 "$python" server.py)
py=$(timeout 60 "$python" "$folder/client.py" "$folder/server.py" 2> "$folder/log")
"$python" - "$ts1" "$ts2" "$py" <<'PY'
import json
import sys

names = ["TypeScript 1.32.2", "TypeScript 2.4.0", "Python 2.3.0"]
seen = dict(zip(names, map(json.loads, sys.argv[1:])))
print("calls of tools on page one and two, when none was listed; after both pages; after page one again:")
for name, calls in seen.items():
    print(f"  {name}: {'; '.join(calls)}")
assert seen == {
    "TypeScript 1.32.2": ["passes passes", "passes fails", "fails passes"],
    "TypeScript 2.4.0": ["passes passes", "fails fails", "fails fails"],
    "Python 2.3.0": ["fails passes", "fails fails", "fails fails"],
}, f"it has changed: {seen}"
PY
# Output of 2026-11-28:
# calls of tools on page one and two, when none was listed; after both pages; after page one again:
#   TypeScript 1.32.2: passes passes; passes fails; fails passes
#   TypeScript 2.4.0: passes passes; fails fails; fails fails
#   Python 2.3.0: fails passes; fails fails; fails fails
