"""Schemas that a provider can't make a grammar of: an output's, and those of strict tools.

Providers compile these. If they can't, they refuse the whole request, and every later one with the same schema: for too
many optional fields (Claude takes 24), unions (16), levels, choices or states, or for a keyword. Not all limits are
documented, and they differ by model. So a request that is refused for its grammars is sent again with no tool strict,
and, if that is refused too, with the output's schema in words: arguments and output are checked here anyway. The
process remembers what was refused, for later turns.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from typing import Final

from pydantic_core import to_json

from everturn.providers.base import Request, ToolSpec

WORDS: Final = re.compile(
    # Claude (anthropic-sdk-python#1185, vercel/ai#17268)
    r"compiled grammar is too large|schema is too complex|schemas? contains? too many|too many strict tools"
    r"|output_config\.format\.schema|for '\w+' type, (?:propert|'additionalproperties')"
    # OpenAI; Gemini (js-genai#882)
    r"|invalid schema for response_format|too many states for serving"
    r"|schema .{0,80}exceeds the maximum allowed nesting",
    re.I | re.S,
)
"""What providers say of such a schema."""

_MOST_REMEMBERED: Final = 256

_refused: dict[str, None] = {}
"""Digests of what was refused."""


def loosened(request: Request) -> Request:
    """The request without grammars that are known to be refused."""
    while _refused and _digest_of(request) in _refused and (looser := _looser(request)) is not None:
        request = looser
    return request


def without_refused(request: Request) -> Request | None:
    """The request to be sent next, after this one was refused for its grammars, which is remembered; None if it has no
    grammars."""
    looser = _looser(request)
    if looser is not None:
        _refused[_digest_of(request)] = None
        if len(_refused) > _MOST_REMEMBERED:
            del _refused[next(iter(_refused))]
    return looser


def _looser(request: Request) -> Request | None:
    if any(tool.options.strict for tool in request.tools):
        return replace(request, tools=tuple(map(_not_strict, request.tools)))
    if request.output_schema is not None and request.grammars:
        return replace(request, grammars=False)
    return None


def _not_strict(tool: ToolSpec) -> ToolSpec:
    if not tool.options.strict:
        return tool
    return replace(tool, options=tool.options.model_copy(update={"strict": None}))


def _digest_of(request: Request) -> str:
    strict = [[tool.name, tool.parameters] for tool in request.tools if tool.options.strict]
    if not strict and (request.output_schema is None or not request.grammars):
        return ""
    compiled = [request.model.name, request.model.base_url, request.output_schema, request.grammars, strict]
    return hashlib.sha256(to_json(compiled, inf_nan_mode="strings")).hexdigest()
