"""What the tools that OpenAI ran are paid for, beside the model's tokens: searches by the piece, pictures by the tokens
of the model that made them (`Response.tool_usage` of openai 3.57.0; servers before that left it out)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from everturn.providers.base import Request
from everturn.providers.catalog import row_of
from everturn.providers.json_values import a_count, a_dict, a_list, a_str
from everturn.providers.openai_responses.caller_run import Item
from everturn.records import PartOfUsage, Usage

_PICTURES_BY: Final = "gpt-image-2.6-sunburst"
"""The model that makes pictures if a request names none (openai 3.57.0, ImageGeneration.model)."""


def searches_of(response: dict[str, Any], items: Sequence[Item], request: Request) -> int:
    """The searches that are paid: as the response counts them, else each search; opening a page that was found, and
    looking for words in it, is not (developers.openai.com, pricing of built-in tools, 2026-11)."""
    if row_of(request.model.provider).responses.server_tools != "openai":
        return 0
    counted = a_dict(a_dict(response.get("tool_usage")).get("web_search"))
    if "num_requests" in counted:
        return a_count(counted["num_requests"])
    actions = [a_dict(item.get("action")) for item in items if item.get("type") == "web_search_call"]
    return sum(a_str(action.get("type")) in {"search", ""} for action in actions)


def by_other_models(response: dict[str, Any], items: Sequence[Item], request: Request) -> tuple[PartOfUsage, ...]:
    """What the models that made pictures used. It is not in the response's `usage`."""
    pictures = a_dict(a_dict(response.get("tool_usage")).get("image_gen"))
    parts = [PartOfUsage(model=_picture_model(response, request), usage=_usage_of(pictures))]
    drawings = [a_dict(item.get("svg_usage")) for item in items]
    parts += [PartOfUsage(model=a_str(usage.get("model")), usage=_usage_of(usage)) for usage in drawings]
    return tuple(part for part in parts if part.usage.total_tokens)


def _picture_model(response: dict[str, Any], request: Request) -> str:
    tools = [a_dict(tool) for tool in (*a_list(response.get("tools")), *request.raw_tools)]
    named = (a_str(tool.get("model")) for tool in tools if tool.get("type") == "image_generation")
    return next(filter(None, named), _PICTURES_BY)


def _usage_of(counts: dict[str, Any]) -> Usage:
    return Usage(
        input_tokens=a_count(counts.get("input_tokens")),
        output_tokens=a_count(counts.get("output_tokens")),
        cached_tokens=a_count(counts.get("cached_tokens")),
        reasoning_tokens=a_count(counts.get("reasoning_tokens")),
        output_image_tokens=a_count(a_dict(counts.get("output_tokens_details")).get("image_tokens")),
    )
