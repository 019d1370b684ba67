#!/usr/bin/env bash
# WHAT BECOMES OF AN MCP CALL THAT TIMED OUT TURNS WITH THE SDK'S VERSION: mcp 1.x says nothing to the server, and the tool runs to its end;
# 2.x cancels it in its middle. The caller is told the same.
#
# Software:  mcp 1.30.0, mcp 2.3.0 (PyPI)
# Expected:  "the sender SHOULD issue a cancellation notification for that request" (MCP 2025-06-18, timeouts), as the official
#            TypeScript SDK does; and an update of the client changes nothing in what the server's tools do
# Seen:      read_timeout_seconds of call_tool, and cancelling its task: with 1.30.0 no notifications/cancelled is sent, and the
#            tool that saves in two steps saves both; with 2.3.0 it is sent, and the same server, of 1.30.0, stops the tool after
#            its first step
# It matters to: tools with effects behind clients with short timeouts, when the client is updated: what was late and done is now half
#            done. Shield what belongs together in the tool, or leave the timeout to the server
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for version in 1.30.0 2.3.0; do
  python3 -m venv "$folder/$version"
  "$folder/$version/bin/pip" install --quiet --disable-pip-version-check "mcp==$version" || exit 2
done
cat > "$folder/server.py" <<'PY'
import asyncio
import sys
from pathlib import Path

from mcp.server.fastmcp import FastMCP

server = FastMCP("ledger", log_level="ERROR")


@server.tool()
async def transfer() -> str:
    """Moves money."""
    ledger = Path(sys.argv[1])
    ledger.write_text("taken from A")
    await asyncio.sleep(2)
    ledger.write_text("taken from A, given to B")
    return "done"


server.run()
PY
cat > "$folder/client.py" <<'PY'
import asyncio
import importlib.metadata
import inspect
import sys
from datetime import timedelta
from pathlib import Path

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

python, server, ledger = sys.argv[1:]
seconds = timedelta(seconds=0.7) if "timedelta" in str(inspect.signature(ClientSession.call_tool)) else 0.7
seen = []


async def main() -> None:
    async with stdio_client(StdioServerParameters(command=python, args=[server, ledger])) as streams:
        async with ClientSession(*streams) as session:
            await session.initialize()
            try:
                await session.call_tool("transfer", {}, read_timeout_seconds=seconds)
            except Exception as error:
                kind = type(error).__name__
            await asyncio.sleep(3)
            seen.append(f"timed out ({kind}): {Path(ledger).read_text()}")
            task = asyncio.create_task(session.call_tool("transfer", {}))
            await asyncio.sleep(0.7)
            task.cancel()
            await asyncio.sleep(3)
            seen.append(f"task cancelled: {Path(ledger).read_text()}")


asyncio.run(main())
version = importlib.metadata.version("mcp")
print(f"client {version}: {'; '.join(seen)}")
both = [text.endswith("given to B") for text in seen]
assert both == [version.startswith("1.")] * 2, f"it has changed: {seen}"
PY
for version in 1.30.0 2.3.0; do
  timeout 60 "$folder/$version/bin/python" "$folder/client.py" "$folder/1.30.0/bin/python" "$folder/server.py" \
    "$folder/ledger" 2> "$folder/log" || { cat "$folder/log"; exit 1; }
done
# Output of 2026-11-28:
# client 1.30.0: timed out (McpError): taken from A, given to B; task cancelled: taken from A, given to B
# client 2.3.0: timed out (MCPError): taken from A; task cancelled: taken from A
