"""A real MCP server, with the official SDK: `python -m tests.support.mcp_shop FOLDER [PORT]`.

FOLDER/log has what it did.
"""

from __future__ import annotations

import asyncio
import base64
import os
import sys
from pathlib import Path
from typing import Annotated, Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.resolve import Elicit, Resolve
from mcp.types import CallToolResult, EmbeddedResource, ImageContent, ResourceLink, TextContent, TextResourceContents
from mcp.types import ToolAnnotations as Hints
from pydantic import BaseModel

FOLDER = Path(sys.argv[1] if len(sys.argv) > 1 else ".")

PICTURE = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"0" * 20).decode()

shop = MCPServer("shop")


def note(line: str) -> None:
    with (FOLDER / "log").open("a") as log:
        log.write(f"{line}\n")


def key_of(ctx: Context[Any, Any]) -> str:
    meta: Any = ctx.request_context.meta or {}
    return str(meta.get("everturn/idempotencyKey"))


@shop.tool(annotations=Hints(read_only_hint=True))
def find(name: str, ctx: Context[Any, Any]) -> str:
    """Finds what is in the shop."""
    note(f"find {name} {key_of(ctx)}")
    return f"one {name}"


@shop.tool(name="shop.count", annotations=Hints(idempotent_hint=True, destructive_hint=False))
def count() -> dict[str, int]:
    """Counts what is there."""
    return {"lamps": 3}


@shop.tool(annotations=Hints(destructive_hint=True))
def wipe(shelf: str) -> str:
    """Empties a shelf."""
    note(f"wipe {shelf}")
    return f"{shelf} is empty"


@shop.tool()
def charge(cents: int) -> str:
    """Takes money."""
    note(f"charge {cents}")
    return f"took {cents}"


@shop.tool(annotations=Hints(read_only_hint=True))
def show() -> CallToolResult:
    """Shows a lamp."""
    page: Any = "shop://lamps/1"
    return CallToolResult(
        content=[
            TextContent(type="text", text="Here:"),
            ImageContent(type="image", data=PICTURE, mime_type="image/png"),
            EmbeddedResource(
                type="resource", resource=TextResourceContents(uri=page, text="A red lamp.", mime_type="text/plain")
            ),
            ResourceLink(type="resource_link", uri="shop://lamps/2", name="blue", mime_type="text/plain"),
        ]
    )


@shop.tool(annotations=Hints(read_only_hint=True))
def catalogue(chars: int) -> str:
    """All that there is."""
    return "lamp " * (chars // 5)


@shop.tool(annotations=Hints(read_only_hint=True))
def fail() -> CallToolResult:
    """Fails."""
    broken = ImageContent(type="image", data=PICTURE, mime_type="image/png")
    return CallToolResult(content=[TextContent(type="text", text="no such lamp"), broken], is_error=True)


@shop.tool(annotations=Hints(idempotent_hint=True))
async def slow(ctx: Context[Any, Any]) -> str:
    """Takes as long as FOLDER has no `go`."""
    note(f"slow {os.getpid()} {key_of(ctx)}")
    step = 0
    while not (FOLDER / "go").exists():
        step += 1
        await ctx.report_progress(step, 100, "packing")
        await asyncio.sleep(0.05)
    return "packed"


@shop.tool()
async def pay(cents: int, ctx: Context[Any, Any]) -> str:
    """The same, and is not to be run twice."""
    note(f"pay {os.getpid()} {cents}")
    while not (FOLDER / "go").exists():  # noqa: ASYNC110 - a file has no event
        await asyncio.sleep(0.05)
    return f"paid {cents}"


class Size(BaseModel):
    size: int


class Colour(BaseModel):
    colour: str
    gift: bool = False


def ask_size() -> Elicit[Size]:
    return Elicit("Which size?", Size)


def ask_colour() -> Elicit[Colour]:
    return Elicit("Which colour?", Colour)


@shop.tool(annotations=Hints(idempotent_hint=True))
def order(what: str, size: Annotated[Size, Resolve(ask_size)], colour: Annotated[Colour, Resolve(ask_colour)]) -> str:
    """Orders a thing; what is missing, it asks."""
    note(f"order {what} {size.size} {colour.colour}")
    return f"ordered {what}, {size.size}, {colour.colour}, gift: {colour.gift}"


@shop.tool()
async def wrap(what: str, ctx: Context[Any, Any], beside: str = "") -> str:
    """Wraps a thing; asks in the middle, as servers did before 2026: once the one beside it has begun."""
    note(f"wrap {what}")
    while beside and f"wrap {beside}\n" not in (FOLDER / "log").read_text():  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    answer = await ctx.elicit("Which paper?", Colour)
    return f"{answer.action}: {answer.data.colour if answer.action == 'accept' else 'none'}"


@shop.tool()
async def learn(ctx: Context[Any, Any]) -> str:
    """Adds a tool."""

    def dance() -> str:
        """Dances."""
        return "danced"

    shop.add_tool(dance, annotations=Hints(read_only_hint=True))
    await ctx.notify_tools_changed()
    if ctx.request_context.protocol_version < "2026":
        await ctx.session.send_tool_list_changed()
    return "learnt to dance"


if __name__ == "__main__":
    note(f"started {os.getpid()}")
    print("the shop is open", file=sys.stderr)
    if len(sys.argv) > 2:
        shop.run("streamable-http", port=int(sys.argv[2]))
    else:
        shop.run()
