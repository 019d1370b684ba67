"""Chat Completions: the tools that the server runs itself, in each server's spelling."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from everturn.errors import InvalidTool
from everturn.models import Model
from everturn.providers.base import Request, warn_unsupported
from everturn.providers.catalog import Dialect
from everturn.tools.server_tools import ServerTool, WebSearch
from everturn.vendor_models.abilities import untaken_error

OPENROUTER_SEARCH: Final = "openrouter:web_search"
COMPOUND_TOOLS: Final[Mapping[str, str]] = {"WebSearch": "web_search", "CodeExecution": "code_interpreter"}
"""What Groq's compound systems call their tools (console.groq.com, compound built-in tools, 2026-11)."""


def encode_server_tools(request: Request, dialect: Dialect) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The entries of `tools`, and the fields of the body in which a server wants them in place of that. Raises
    InvalidTool for a tool that the server does not have."""
    if not request.server_tools:
        return [], {}
    if is_compound(request.model):
        return [], _of_compound(request)
    known = dict(dialect.server_tools)
    tools: list[dict[str, Any]] = []
    for tool in request.server_tools:
        kind = known.get(type(tool).__name__)
        if kind is None:
            raise _missing_tool(request.model, tool)
        if kind == OPENROUTER_SEARCH and isinstance(tool, WebSearch):
            tools.append({"type": kind, "parameters": _openrouter_search(tool)})
            continue
        _warn_of_fields(request.model, tool)
        builtin = {"type": "builtin_function", "function": {"name": kind}}
        tools.append(builtin if kind.startswith("$") else {"type": kind})
    return tools, {}


def searches_without_thinking(request: Request) -> bool:
    """Whether one of the tools is Moonshot's own, beside which its models may not think: "you must disable the model's
    thinking" (platform.kimi.ai, web search, 2026-11)."""
    if request.model.provider != "moonshot":
        return False
    raw = any(item.get("type") == "builtin_function" for item in request.raw_tools)
    return raw or any(isinstance(tool, WebSearch) for tool in request.server_tools)


def is_compound(model: Model) -> bool:
    """Groq's systems, which have their tools built in: a request says which of them may be used."""
    return model.provider == "groq" and model.model.rpartition("/")[2].startswith("compound")


def _of_compound(request: Request) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for tool in request.server_tools:
        name = type(tool).__name__
        if name not in COMPOUND_TOOLS:
            raise untaken_error(request.model, name)
        if isinstance(tool, WebSearch):
            domains = {"include_domains": tool.allowed_domains, "exclude_domains": tool.blocked_domains}
            if settings := {field: list(names) for field, names in domains.items() if names}:
                fields["search_settings"] = settings
            _warn_of_fields(request.model, tool, sent=("allowed_domains", "blocked_domains"))
    enabled = [COMPOUND_TOOLS[type(tool).__name__] for tool in request.server_tools]
    return {"compound_custom": {"tools": {"enabled_tools": enabled}}, **fields}


def _openrouter_search(tool: WebSearch) -> dict[str, Any]:
    """Fields as pydantic-ai 2.68.0 sends them (models/openrouter.py), tried live (2026-10)."""
    location = {"type": "approximate", **tool.user_location} if tool.user_location else None
    parameters = {
        "search_context_size": tool.context_size,
        "user_location": location,
        "allowed_domains": list(tool.allowed_domains),
        "excluded_domains": list(tool.blocked_domains),
        "max_uses": tool.max_uses,
    }
    return {name: value for name, value in parameters.items() if value}


def _warn_of_fields(model: Model, tool: ServerTool, *, sent: Iterable[str] = ()) -> None:
    fields = type(tool).model_fields
    for field in sorted(tool.model_fields_set - {*sent}):
        if getattr(tool, field) != fields[field].default:
            warn_unsupported(model, f"{type(tool).__name__}({field}=)")


def _missing_tool(model: Model, tool: ServerTool) -> InvalidTool:
    error = untaken_error(model, type(tool).__name__)
    if model.provider == "openai-chat" and not model.base_url and type(tool).__name__ != "XSearch":
        return InvalidTool(error.message, cure="Use it with 'openai:', which has it.")
    return error
