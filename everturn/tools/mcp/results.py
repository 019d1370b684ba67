"""What an MCP server returned, as what the model is told."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from everturn.errors import ToolFailed
from everturn.records import Document, Image, Text
from everturn.tools.results import to_json
from everturn.vendors.content_blocks import FAILED, NO_OUTPUT, read_block

if TYPE_CHECKING:
    from mcp import types


def parts_of(result: types.CallToolResult) -> list[Text | Image | Document]:
    """Its content; and its structured content, unless a text says the same. Raises ToolFailed if it is an error."""
    parts = [_part(block) for block in result.content]
    structured = result.structured_content
    if structured is not None and not any(_says(part, structured) for part in parts):
        parts.append(Text(text=to_json(structured)))
    if result.is_error:
        raise ToolFailed("\n".join(part.text for part in parts if isinstance(part, Text)) or FAILED)
    return parts or [Text(text=NO_OUTPUT)]


def _part(block: types.ContentBlock) -> Text | Image | Document:
    if block.type == "resource_link":
        about = f" ({block.mime_type})" if block.mime_type else ""
        told = f": {block.description}" if block.description else ""
        return Text(text=f"[resource {block.name}{about} at {block.uri}{told}]")
    written = block.model_dump(mode="json", by_alias=True, exclude_none=True)
    return read_block({key: value for key, value in written.items() if key not in ("annotations", "_meta")}) or Text(
        text=to_json(written)
    )


def _says(part: Text | Image | Document, structured: Any) -> bool:
    """Whether a part already says the structured content. Servers also write it, or its one field for the model, as a
    text; and they wrap a value that is not an object as the `result` of one."""
    if not isinstance(part, Text):
        return False
    alone = structured.get("result") if isinstance(structured, dict) and structured.keys() == {"result"} else structured
    if part.text == alone or (isinstance(structured, dict) and part.text in structured.values()):
        return True
    try:
        said = json.loads(part.text)
    except ValueError:
        return isinstance(alone, list) and part.text in alone
    return bool(said in (structured, alone) or (isinstance(alone, list) and said in alone))
