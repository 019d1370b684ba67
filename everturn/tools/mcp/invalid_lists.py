"""A list of tools as the server sends it, before the SDK reads it: one that the protocol does not allow takes no other
away.

The SDK (mcp 2.3.0) refuses the whole list for a tool whose schema has no `type`, or whose output is not an object.
"""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from everturn.logs import get_logger
from everturn.validation.valid_schemas import valid_type

_log = get_logger("everturn.mcp")


def mend(result: Any) -> None:
    """Makes the list in an answer one that can be read, in place. A tool that can't be is left out, with a line in the
    log."""
    if isinstance(result, dict) and isinstance(tools := result.get("tools"), list):
        result["tools"] = [mended for tool in tools if (mended := _mend_tool(tool)) is not None]


def _mend_tool(tool: Any) -> dict[str, Any] | None:
    from mcp import types

    if not isinstance(tool, dict):
        _log.warning("mcp.tool_left_out", tool=None, why="It is not a JSON object.")
        return None
    mended = {**tool, "inputSchema": _of_object(tool.get("inputSchema"))}
    if "outputSchema" in mended and not _says_object(mended["outputSchema"]):
        del mended["outputSchema"]  # only checks its results
    try:
        types.Tool.model_validate(mended, by_name=False)
        problem = ""
        if not _says_object(mended["inputSchema"]):
            problem = "Its arguments are not a JSON object."
    except ValidationError as error:
        problem = str(error).replace("\n", " ")
    if problem:
        _log.warning("mcp.tool_left_out", tool=str(tool.get("name"))[:100], why=problem[:300])
        return None
    return mended


def _of_object(schema: Any) -> Any:
    """The schema, with the `type` that every tool's has: some servers leave it out, or allow null beside it."""
    if schema is None or schema == []:  # PHP's empty array
        return {"type": "object"}
    if not isinstance(schema, dict):
        return schema
    kinds = valid_type(schema.get("type", "object"))
    if kinds is None or kinds == "object" or "object" in kinds:
        return {**schema, "type": "object"}
    return schema


def _says_object(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.get("type") == "object"
