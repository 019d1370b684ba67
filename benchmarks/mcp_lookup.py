"""The tool of the benchmarks' conversations, as an MCP server: `python -m benchmarks.mcp_lookup`."""

from __future__ import annotations

from mcp.server.mcpserver import MCPServer
from mcp.types import ToolAnnotations

from benchmarks import work

server = MCPServer("lookup")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def lookup(number: int) -> str:
    """Look up a number."""
    return work.looked_up(number)


if __name__ == "__main__":
    server.run()
