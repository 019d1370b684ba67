"""The MCP server of these programs: `python mcp_server.py`, over its standard input and output."""

from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.types import ToolAnnotations
from pydantic import BaseModel, Field

server = MCPServer("beside")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def danger_zone() -> str:
    """What nobody should call."""
    return "boom"


@server.tool(annotations=ToolAnnotations(destructive_hint=True))
def delete_file(path: str) -> str:
    """Deletes a file."""
    return f"{path} is gone"


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def echo_meta(ctx: Context[Any, Any]) -> dict[str, Any]:
    """What came along with the call."""
    meta: Any = ctx.request_context.meta or {}
    return {"tenant_id": meta.get("tenant_id")}


class BookingDetails(BaseModel):
    restaurant: str = Field(description="Choose a restaurant")
    party_size: int = Field(description="Number of people", ge=1, le=8)
    date: str = Field(description="Reservation date (DD-MM-YYYY)")


@server.tool()
async def book_table(ctx: Context[Any, Any]) -> str:
    """Book a restaurant table."""
    result = await ctx.elicit("Please provide your booking details:", BookingDetails)
    if result.action != "accept":
        return "No problem! Maybe another time."
    return f"Booked table for {result.data.party_size} at {result.data.restaurant} on {result.data.date}"


if __name__ == "__main__":
    server.run()
