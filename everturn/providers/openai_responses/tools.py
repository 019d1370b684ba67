"""Responses: the tools of a request, our own and those that the server runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from everturn.models import Model
from everturn.providers.base import Request, ToolSpec, tool_options, warn_unsupported
from everturn.providers.catalog import row_of
from everturn.providers.schema_strict import only_fitting
from everturn.tools.provider_defined import called_as
from everturn.tools.server_tools import CodeExecution, ServerTool, WebSearch, XSearch
from everturn.vendor_models.abilities import untaken_error

Made = dict[str, Any]

_INCLUDES = {
    ("openai", WebSearch): "web_search_call.action.sources",
    ("openai", CodeExecution): "code_interpreter_call.outputs",
}
"""What a server leaves out of its tools' items unless it is asked for."""


def encode_tools(request: Request) -> list[Made]:
    """Raises InvalidTool for a tool that the provider does not have."""
    served = [_encode_server_tool(tool, request.model) for tool in request.server_tools]
    return [*(_encode_function(tool, request.model) for tool in request.tools), *served, *map(dict, request.raw_tools)]


def tool_choice_fields(request: Request) -> Made:
    """The fields that say which tools may be called, and how many at a time."""
    wanted = "none" if request.conclude else request.settings.tool_choice
    fields: Made = {}
    if wanted in {"auto", "none", "required"}:
        fields["tool_choice"] = wanted
    elif wanted:
        fields["tool_choice"] = _named_tool(wanted, request)
    if request.settings.parallel_calls is not None:
        fields["parallel_tool_calls"] = request.settings.parallel_calls
    return fields


def _named_tool(name: str, request: Request) -> Made:
    """One tool by name: a function, a custom tool, or one of the provider's own, which goes by its type."""
    if any(tool.name == name for tool in request.tools):
        return {"type": "function", "name": name}
    for item in request.raw_tools:
        if name in called_as(item):
            named: Made = {"type": item.get("type")}
            if item.get("type") == "custom":
                named["name"] = name
            return named
    return {"type": "function", "name": name}


def included_fields(request: Request) -> list[str]:
    family = row_of(request.model.provider).responses.server_tools
    wanted = (_INCLUDES.get((family, type(tool))) for tool in request.server_tools)
    return [*dict.fromkeys(filter(None, wanted))]


def refused_beside_minimal(request: Request) -> str:
    """The type of a tool that OpenAI refuses at the lowest effort; empty if there is none. "The following tools cannot
    be used with reasoning.effort 'minimal': web_search." (openai/codex#3559, 2025-09)"""
    if row_of(request.model.provider).responses.server_tools != "openai":
        return ""
    if any(isinstance(tool, WebSearch) for tool in request.server_tools):
        return "web_search"
    kinds = (str(item.get("type")) for item in request.raw_tools)
    return next((kind for kind in kinds if kind.startswith(("web_search", "image_generation"))), "")


def _encode_function(tool: ToolSpec, model: Model) -> Made:
    dialect = row_of(model.provider).responses
    known: list[str] = []
    if dialect.strict_tools:
        known.append("strict")
    if dialect.server_tools == "openai":
        known += ["defer_loading", "allowed_callers"]
    options = tool_options(model, tool, *known, callers=("direct", "programmatic"))
    # `strict` is sent because without it OpenAI takes the schema as strict, and makes every parameter required.
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": dict(tool.parameters),
        "strict": False,
        **only_fitting(model, tool, options),
    }


def _encode_server_tool(tool: ServerTool, model: Model) -> Made:
    known = _SERVED[row_of(model.provider).responses.server_tools]
    make = known.get(type(tool))
    if make is None:
        raise untaken_error(model, type(tool).__name__)
    return make(tool, model)


def _openai_search(tool: Any, model: Model) -> Made:
    entry: Made = {"type": "web_search"}
    if tool.allowed_domains:
        entry["filters"] = {"allowed_domains": list(tool.allowed_domains)}
    if tool.user_location is not None:
        entry["user_location"] = {"type": "approximate", **tool.user_location}
    if tool.context_size is not None:
        entry["search_context_size"] = tool.context_size
    _warn_of(tool, model, ("blocked_domains", "max_uses"))
    return entry


def _ollama_search(tool: Any, model: Model) -> Made:
    _warn_of(tool, model, WebSearch.model_fields)
    return {"type": "web_search"}


def _xai_search(tool: Any, model: Model) -> Made:
    entry: Made = {"type": "web_search"}
    if tool.allowed_domains:
        entry["allowed_domains"] = list(tool.allowed_domains)
    if tool.blocked_domains:
        entry["excluded_domains"] = list(tool.blocked_domains)
    _warn_of(tool, model, ("max_uses", "user_location", "context_size"))
    return entry


def _x_search(tool: Any, model: Model) -> Made:  # noqa: ARG001 - every maker is given both
    return {"type": "x_search", **tool.model_dump(mode="json", exclude_defaults=True)}


def _warn_of(tool: ServerTool, model: Model, unsupported: Iterable[str]) -> None:
    for name in unsupported:
        if value := getattr(tool, name):
            warn_unsupported(model, f"{type(tool).__name__}({name}={value!r})")


_Maker = Callable[[Any, Model], Made]
_SERVED: Mapping[str, Mapping[type[ServerTool], _Maker]] = {
    "openai": {
        WebSearch: _openai_search,
        CodeExecution: lambda *_: {"type": "code_interpreter", "container": {"type": "auto"}},
    },
    "xai": {
        WebSearch: _xai_search,
        XSearch: _x_search,
        CodeExecution: lambda *_: {"type": "code_interpreter"},
    },
    # Only the type: "the exact web_search type and existing Ollama search defaults" (ollama/ollama#17686, 2026-08).
    "ollama": {WebSearch: _ollama_search},
    "none": {},
}
