"""The tool `read_result`: the model reads on in a result of its conversation that was cut for its size."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from everturn.errors import ToolFailed
from everturn.records import on_lines
from everturn.storage.artifacts import Artifacts
from everturn.tools.context import ToolContext
from everturn.tools.tool import Tool, tool
from everturn.truncation import describe_part

READ_RESULT = "read_result"

PAGE_CHARS = 20_000
MAX_PAGE_CHARS = 50_000

PLACE_CHARS = 500
"""Room on a page for its first line, which says its place in the result."""

AROUND_CHARS = 100
"""How many characters are shown on each side of a match."""


def read_result_tool(artifacts: Artifacts, *, max_result_chars: int) -> Tool:
    """The tool `read_result`. It reads what was kept for its own conversation, and nothing else."""
    page = min(MAX_PAGE_CHARS, max_result_chars - PLACE_CHARS)

    def read_result(
        call_id: Annotated[str, Field(description="The call whose result was cut. The notice in the result names it.")],
        context: ToolContext,
        offset: Annotated[int, Field(ge=0, description="The character to start at.")] = 0,
        limit: Annotated[int, Field(ge=1, description="How many characters; fewer may come.")] = PAGE_CHARS,
        search: Annotated[
            str, Field(description="Find this text: returns the places where it occurs instead of a page.")
        ] = "",
    ) -> str:
        """Read on in an earlier tool result that was cut for its size, or search in it."""
        text = _text_of(artifacts, context, call_id)
        if offset > len(text):
            raise ToolFailed(f"The result of {call_id} has {len(text):,} characters: offset={offset} is past its end.")
        max_chars = min(limit, page)
        if search:
            return _search_text(text, search, offset, max_chars)
        return _format_page(text, call_id, offset, max_chars)

    return tool(read_result, effect="read")


def _text_of(artifacts: Artifacts, context: ToolContext, call_id: str) -> str:
    try:
        result = artifacts.read(context.conversation_id, call_id)
    except Exception as error:
        context.log.warning("artifact.not_read", result=call_id, error=f"{type(error).__name__}: {error}")
        # Without the path: the model has no use for it, and users should not see it.
        raise ToolFailed(f"The result of {call_id!r} can't be read now.") from error
    if result is None:
        raise ToolFailed(
            f"No result of {call_id!r} is kept. Only results that were cut are kept, "
            "each under the call_id in its notice."
        )
    return result.text or on_lines([*map(describe_part, result.content)])


def _format_page(text: str, call_id: str, offset: int, limit: int) -> str:
    end = min(offset + limit, len(text))
    following = f"next: offset={end}" if end < len(text) else "this is the end"
    return f"[{call_id[:100]}, characters {offset} to {end} of {len(text)}; {following}]\n{text[offset:end]}"


def _search_text(text: str, search: str, offset: int, limit: int) -> str:
    """Each match with its offset and the text around it, up to `limit` characters."""
    # casefold() would move the offsets; lower() does so too, for a few letters only.
    lowered = text.lower()
    wanted = search.lower()
    if len(lowered) != len(text):
        lowered = text
        wanted = search
    places: list[str] = []
    room = limit
    position = lowered.find(wanted, offset)
    while position >= 0:
        around = " ".join(text[max(0, position - AROUND_CHARS) : position + len(search) + AROUND_CHARS].split())
        line = f"offset {position}: …{around}…"
        if len(line) > room and places:
            return "\n".join([f"[More follow: search again from offset={position}.]", *places])
        places.append(line[:limit])
        room -= len(line) + 1
        position = lowered.find(wanted, position + len(wanted))
    summary = f"[{len(places)} found from offset {offset} on; {len(text)} characters in all.]"
    return "\n".join([summary, *places])
