"""A real MCP server that sends too much: `python -m tests.support.mcp_flood FOLDER [PORT] [LIST]`.

Plain Python, in the protocol of 2025, as no SDK sends such things. Over its standard input and output, or over HTTP
if a port is given (0: none). Each tool is a kind of flood; those without an end go on until FOLDER has `go`.
FOLDER/log has the calls. LIST says how its list of tools is: plain, pages, huge, deep or odd.
"""

from __future__ import annotations

import json
import sys
import zlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

FOLDER = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
PORT = int(sys.argv[2]) if len(sys.argv) > 2 else 0
LIST = sys.argv[3] if len(sys.argv) > 3 else "plain"

MIB = 2**20
LONG = "x" * 5_000
"""Of a message among those without an end: with short ones, hundreds are in each piece that is read, and handling them
is all that a test does."""
FLOODS = ("long", "endless", "values", "logs", "progress", "pings", "errors", "bomb", "fine")


def tool(name: str, description: str = "", schema: dict[str, Any] | None = None) -> dict[str, Any]:
    hints = {} if name.startswith("once_") else {"idempotentHint": True}
    return {
        "name": name,
        "description": description,
        "inputSchema": schema or {"type": "object"},
        "annotations": hints,
    }


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def listed(cursor: str | None) -> dict[str, Any]:
    plain = [tool(prefix + name) for name in FLOODS for prefix in ("", "once_")]
    match LIST:
        case "pages":  # without an end
            page = int(cursor or 0)
            return {"tools": [tool(f"tool_{page}_{n}") for n in range(30)], "nextCursor": str(page + 1)}
        case "huge":  # each of them is allowed, but not all together
            return {"tools": [*plain, tool("wordy", "x" * MIB), *(tool(f"t{n}", "x" * 90_000) for n in range(100))]}
        case "deep":
            return {"tools": [*plain, tool("deep", schema=nested(60))]}
        case "odd":  # what the protocol's types don't allow
            odd = [None, {"name": "bare"}, tool("list", schema={"type": "array"}), tool("text") | {"inputSchema": "x"}]
            typeless = [
                tool("typeless") | {"inputSchema": {"properties": {"a": {}}}},
                tool("empty") | {"inputSchema": {}},
            ]
            listing = tool("listing") | {"outputSchema": {"type": "array"}}
            return {"tools": [*plain, *odd, *typeless, listing, {"inputSchema": {}}]}
        case _:
            return {"tools": plain}


def answer(request_id: Any, result: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "result": result}).encode()


def message(method: str, params: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "method": method, "params": params, **more}).encode()


def note(line: str) -> None:
    with (FOLDER / "log").open("a") as log:
        log.write(f"{line}\n")


def done() -> bool:
    return (FOLDER / "go").exists()


def said(request: dict[str, Any]) -> Iterator[bytes]:
    """Pieces of messages, each of which ends with a line feed."""
    request_id, method, params = request.get("id"), request["method"], request.get("params") or {}
    if request_id is None:
        return
    if method == "initialize":
        offered: dict[str, Any] = {"tools": {}, "logging": {}}
        info = {"name": "flood", "version": "1"}
        version = params["protocolVersion"]
        yield answer(request_id, {"protocolVersion": version, "capabilities": offered, "serverInfo": info}) + b"\n"
    elif method == "tools/list":
        yield answer(request_id, listed(params.get("cursor"))) + b"\n"
    elif method == "tools/call":
        note(params["name"])
        yield from flood(params["name"].removeprefix("once_"), request_id, params)
    else:
        error = {"code": -32601, "message": "Method not found"}
        yield json.dumps({"jsonrpc": "2.0", "id": request_id, "error": error}).encode() + b"\n"


def flood(kind: str, request_id: Any, params: dict[str, Any]) -> Iterator[bytes]:
    content = {"content": [{"type": "text", "text": "TEXT"}]}
    before, after = answer(request_id, content).split(b"TEXT")
    match kind:
        case "long":
            yield before
            for _ in range(8):  # times what a test lets a message have
                yield b"x" * MIB
            yield after + b"\n"
        case "endless":  # nobody can tell what it is
            while not done():
                yield b"x" * MIB
        case "values":
            head = json.dumps({"jsonrpc": "2.0", "id": request_id}).encode().removesuffix(b"}")
            yield head + b',"result":{"content":[],"structuredContent":{"a":['
            yield b",".join([b"{}"] * 20_000) + b"]}}}\n"
        case "logs":
            line = message("notifications/message", {"level": "info", "data": LONG}) + b"\n"
            while not done():
                yield line * 10
            yield before + b"at last" + after + b"\n"
        case "progress":
            token = (params.get("_meta") or {}).get("progressToken")
            line = message("notifications/progress", {"progressToken": token, "progress": 1, "message": LONG})
            while not done():
                yield (line + b"\n") * 10
            yield before + b"at last" + after + b"\n"
        case "errors":
            while not done():
                sys.stderr.write("line\n" * 1000)
            yield before + b"at last" + after + b"\n"
        case "pings":  # over stdio, nobody reads their answers
            number = 0
            while not done():
                number += 1
                yield message("ping", {"_meta": {"a": "x" * 500}}, id=f"ping{number}") + b"\n"
            yield before + b"at last" + after + b"\n"
        case _:
            yield before + b"fine" + after + b"\n"


def over_stdio() -> None:
    for line in sys.stdin.buffer:
        for piece in said(json.loads(line)):
            sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "id" not in request:
            self.send_response(202)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        kind = (request.get("params") or {}).get("name", "").removeprefix("once_")
        self.send_response(200)
        stream = kind in ("endless", "logs", "progress", "pings")
        self.send_header("Content-Type", "text/event-stream" if stream else "application/json")
        self.send_header("Connection", "close")
        self.close_connection = True
        if kind == "bomb":
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        if kind == "bomb":
            note(request["params"]["name"])
        for piece in bomb() if kind == "bomb" else said(request):
            self.wfile.write(self.events(piece) if stream else piece)

    def events(self, piece: bytes) -> bytes:
        return b"".join(b"data: " + line + b"\n\n" for line in piece.splitlines()) if b"\n" in piece else piece

    def do_GET(self) -> None:
        self.send_error(405)

    def log_message(self, *_: Any) -> None:
        pass


def bomb() -> Iterator[bytes]:
    """4 GiB, in 4 MB."""
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    block = packer.compress(b" " * (4 * MIB)) + packer.flush(zlib.Z_FULL_FLUSH)
    yield b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
    for _ in range(1024):
        yield block


if __name__ == "__main__":
    if PORT:
        ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
    else:
        over_stdio()
