"""A server with each Python SDK: `server.py mcp1|mcp2|fastmcp stdio|streamable-http|sse [PORT]`."""

import base64
import sys

KIND, TRANSPORT, PORT = sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 0
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)

if KIND == "mcp1":
    from mcp.server.fastmcp import FastMCP, Image

    server = FastMCP("peer", port=PORT)
elif KIND == "mcp2":
    from mcp.server.mcpserver import Image, MCPServer

    server = MCPServer("peer")
else:
    from fastmcp import FastMCP
    from fastmcp.utilities.types import Image

    server = FastMCP("peer")


@server.tool()
def pay(cents: int) -> str:
    """Pays."""
    return f"paid {cents}"


@server.tool()
def lamps() -> list[dict[str, int]]:
    return [{"red": 1}, {"blue": 2}]


@server.tool()
def count() -> int:
    return 3


@server.tool()
def nothing() -> None: ...


@server.tool()
def picture() -> Image:
    return Image(data=PIXEL, format="png")


@server.tool()
def boom() -> str:
    raise ValueError("no lamp")


if TRANSPORT == "stdio":
    server.run("stdio")
elif KIND == "mcp1":
    server.run(TRANSPORT)
else:
    server.run(TRANSPORT, host="127.0.0.1", port=PORT)
