"""Tools that are written as dicts, as front ends have them: the client runs them, or a handler does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from everturn.errors import InvalidTool
from everturn.tools.given_schema import given_arguments
from everturn.tools.options import ToolOptions
from everturn.tools.provider_defined import Handler, tool_from_handler
from everturn.tools.tool import NO_TIMEOUT, Tool

_DICT_KEYS = frozenset({"name", "description", "parameters", "type", *ToolOptions.model_fields})


def client_tool(item: Mapping[str, Any], handlers: Mapping[str, Handler], *, place: str) -> Tool:
    """A tool that the client runs, or a handler, from a dict with a name."""
    unknown = sorted(map(str, item.keys() - _DICT_KEYS))
    if unknown or not isinstance(item.get("description", ""), str):
        what = f"the key {unknown[0]!r}" if unknown else f"description={item['description']!r}"
        raise InvalidTool(
            f"{place} has {what}.", cure="Write {'name': '...', 'description': '...', 'parameters': a JSON schema}."
        )
    arguments = given_arguments(item.get("parameters", {}), place=place, option="parameters")
    described: dict[str, Any] = {
        "description": item.get("description") or arguments.schema.get("description", ""),
        "arguments": arguments,
        "options": ToolOptions(**{key: value for key, value in item.items() if key in ToolOptions.model_fields}),
    }
    if isinstance(item["name"], str) and (handler := handlers.get(item["name"])) is not None:
        tool = tool_from_handler(handler, item["name"], parameters=item.get("parameters", {}))
        return replace(tool, **described, provider_tool=False)
    try:
        return Tool(name=item["name"], runs_on="client", timeout=NO_TIMEOUT, patience=NO_TIMEOUT, **described)
    except InvalidTool as error:
        raise InvalidTool(f"{place}: {error.message}", cure="Change the dict's 'name'.") from error
