#!/usr/bin/env bash
# What an exception in an MCP tool says reaches the caller with mcp 1.x and with fastmcp, and not with mcp 2.
#
# Software:  mcp 1.30.0, mcp 2.3.0, fastmcp 4.2.3 (PyPI)
# Expected:  the same function that raises ValueError("no lamp") gives the same words after an update of the SDK
# Seen:      1.x and fastmcp: the words; 2.x: "Error executing tool find" alone. A failed validation of the arguments is told
#            by all three. Only `mcp.server.mcpserver.exceptions.ToolError` has words for the caller in 2.x
# It matters to: servers that move to 2.x: a model that read why a call failed, and mended it, now repeats it
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat > "$folder/tool.py" <<'PY'
import asyncio
import sys

KIND = sys.argv[1]
if KIND == "mcp1":
    from mcp.server.fastmcp import FastMCP as Server
    from mcp.shared.memory import create_connected_server_and_client_session as connected
elif KIND == "mcp2":
    from mcp import Client as connected
    from mcp.server.mcpserver import MCPServer as Server
else:
    from fastmcp import Client as connected
    from fastmcp import FastMCP as Server
server = Server("shop")


@server.tool()
def find(name: str) -> str:
    raise ValueError("no lamp")


async def main():
    options = {"raise_on_error": False} if KIND == "fastmcp" else {}
    async with connected(server._mcp_server if KIND == "mcp1" else server) as client:
        result = await client.call_tool("find", {"name": "lamp"}, **options)
        print(f"{KIND}: {result.content[0].text}")


asyncio.run(main())
PY
seen=""
for kind in mcp1:mcp==1.30.0 mcp2:mcp==2.3.0 fastmcp:fastmcp==4.2.3; do
  python3 -m venv "$folder/${kind%%:*}"
  "$folder/${kind%%:*}/bin/pip" install --quiet --disable-pip-version-check "${kind#*:}" || exit 2
  seen+="$("$folder/${kind%%:*}/bin/python" "$folder/tool.py" "${kind%%:*}" 2>/dev/null)"$'\n'
done
echo "$seen"
[ "$seen" = "mcp1: Error executing tool find: no lamp
mcp2: Error executing tool find
fastmcp: Error calling tool 'find': no lamp
" ] || { echo "it has changed"; exit 1; }
# Output of 2026-11-27:
# mcp1: Error executing tool find: no lamp
# mcp2: Error executing tool find
# fastmcp: Error calling tool 'find': no lamp
