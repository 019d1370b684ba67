#!/usr/bin/env bash
# The MCP project's own test server answers a session that it does not know with 400, where the protocol says 404.
#
# Software:  @modelcontextprotocol/server-everything 2026.8.31 (npm)
# Expected:  404 for a session that the server does not know (any more): "clients MUST start a new session" on that status
# Seen:      400 with the JSON-RPC error -32000 and the id null, as for a request without any session, since the handler looks
#            the session up before the SDK's transport, which would say 404, sees it. The SDK's examples do the same
# It matters to: clients over streamable HTTP: one that begins a new session on 404 alone never gets over a restart of such a
#            server; the request was not begun with, so that it may be sent again
set -euo pipefail
folder=$(mktemp -d)
process=""
trap '[ -z "$process" ] || kill "$process"; rm -rf "$folder"' EXIT
echo '{"private": true}' > "$folder/package.json"
(cd "$folder" && npm install --silent --no-audit --no-fund @modelcontextprotocol/server-everything@2026.8.31) || exit 2
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
PORT=$port node "$folder/node_modules/@modelcontextprotocol/server-everything/dist/index.js" streamableHttp > "$folder/log" 2>&1 &
process=$!
call='{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "echo", "arguments": {"message": "hi"}}}'
seen=$(curl --silent --retry 30 --retry-delay 1 --retry-connrefused --write-out ' %{http_code}' "http://127.0.0.1:$port/mcp" \
  -H 'content-type: application/json' -H 'accept: application/json, text/event-stream' \
  -H 'mcp-session-id: 7e9c1a34-0000-4000-8000-000000000000' -H 'mcp-protocol-version: 2025-06-18' -d "$call")
echo "$seen"
case "$seen" in
  *'"code":-32000'*' 400') ;;
  *) echo "it has changed"; exit 1 ;;
esac
# Output of 2026-11-27:
# {"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"}} 400
