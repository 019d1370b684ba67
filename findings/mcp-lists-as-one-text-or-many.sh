#!/usr/bin/env bash
# The same MCP tool of `-> list[str]` is a text block for each item, or one JSON text; an empty list is no block at all.
#
# Software:  mcp 1.30.0, mcp 2.3.0, fastmcp 4.2.3 (PyPI)
# Expected:  FastMCP began as one code base, and the decorated function is the same: the same content; and something for []
# Seen:      mcp (1.x and 2.x) sends one text for each item, fastmcp one text that is a JSON array; all three send an empty
#            `content` for an empty list, which only `structuredContent` tells from a tool that returned nothing
# It matters to: clients that show `content` alone (a model reads nothing after an empty search), or that look for the text
#            that repeats `structuredContent`: neither form is the JSON of that object
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat > "$folder/server.py" <<'PY'
import sys
if sys.argv[1] == "mcp2":
    from mcp.server.mcpserver import MCPServer as Server
elif sys.argv[1] == "mcp1":
    from mcp.server.fastmcp import FastMCP as Server
else:
    from fastmcp import FastMCP as Server
server = Server("lists")


@server.tool()
def names() -> list[str]:
    return ["a", "b"]


@server.tool()
def none() -> list[str]:
    return []


server.run("stdio")
PY
cat > "$folder/client.py" <<'PY'
import json, subprocess, sys

process = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def send(**message):
    process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    process.stdin.flush()


def ask(id, method, **params):
    send(id=id, method=method, params=params)
    while (answer := json.loads(process.stdout.readline())).get("id") != id:
        pass
    return answer["result"]


ask(1, "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "f", "version": "1"})
send(method="notifications/initialized")
told = []
for id, name in enumerate(("names", "none"), 2):
    result = ask(id, "tools/call", name=name, arguments={})
    told.append(f"{name} content={[block['text'] for block in result['content']]} structured={result['structuredContent']}")
print("; ".join(told))
process.kill()
PY
seen=""
for kind in mcp1:mcp==1.30.0 mcp2:mcp==2.3.0 fastmcp:fastmcp==4.2.3; do
  python3 -m venv "$folder/${kind%%:*}"
  "$folder/${kind%%:*}/bin/pip" install --quiet --disable-pip-version-check "${kind#*:}" || exit 2
  python="$folder/${kind%%:*}/bin/python"
  seen+="${kind%%:*}: $("$python" "$folder/client.py" "$python" "$folder/server.py" "${kind%%:*}")"$'\n'
done
echo "$seen"
many="names content=['a', 'b'] structured={'result': ['a', 'b']}; none content=[] structured={'result': []}"
one="names content=['[\"a\",\"b\"]'] structured={'result': ['a', 'b']}; none content=[] structured={'result': []}"
[ "$seen" = "mcp1: $many"$'\n'"mcp2: $many"$'\n'"fastmcp: $one"$'\n' ] || { echo "it has changed"; exit 1; }
# Output of 2026-11-27:
# mcp1: names content=['a', 'b'] structured={'result': ['a', 'b']}; none content=[] structured={'result': []}
# mcp2: names content=['a', 'b'] structured={'result': ['a', 'b']}; none content=[] structured={'result': []}
# fastmcp: names content=['["a","b"]'] structured={'result': ['a', 'b']}; none content=[] structured={'result': []}
