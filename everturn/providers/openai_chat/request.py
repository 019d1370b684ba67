"""OpenAI's Chat Completions, and the dialects of the servers that speak it too: requests.

The transcript is written in `messages.py`.
"""

from __future__ import annotations

from typing import Any

from everturn.models import Model
from everturn.providers.base import (
    Request,
    ToolSpec,
    cache_key,
    check_tools,
    may_call,
    plain_name,
    schema_in_words,
    tool_options,
    warn_unsupported,
)
from everturn.providers.catalog import Dialect, dialect_of, grammar_over_calls
from everturn.providers.efforts import nearest_effort, temperature_beside
from everturn.providers.openai_chat.messages import encode_messages
from everturn.providers.openai_chat.server_tools import encode_server_tools, searches_without_thinking
from everturn.providers.schema_strict import fits_strict, only_fitting
from everturn.vendor_models.abilities import UNKNOWN, abilities_of

PATH = "/chat/completions"


def encode(request: Request) -> tuple[str, dict[str, Any]]:
    """The path under the base URL, and the body, of which the messages may be shared with other requests: read only.

    Raises InvalidTool for a server tool that the provider does not have; warns of what it can't do.
    """
    check_tools(request)
    dialect = dialect_of(request.model)
    output = _response_format(request, dialect)
    instructions = request.instructions
    # In every turn, or the prompt's beginning would change with the tools; and transformers' server (5.24) leaves a
    # response_format out in silence.
    in_words = output.get("type") != "json_schema" or grammar_over_calls(request.model)
    if request.output_schema is not None and in_words:
        instructions = f"{instructions}\n\n{schema_in_words(request)}".strip()
    body: dict[str, Any] = {
        "model": request.model.model,
        "messages": encode_messages(request, instructions=instructions),
    }
    body |= _encode_tools(request, dialect)
    if output:
        body["response_format"] = output
    body |= _encode_settings(request, dialect)
    merged = body | request.settings.extra
    if isinstance(also := request.settings.extra.get("stream_options"), dict):
        merged["stream_options"] = body.get("stream_options", {}) | also  # the usage is asked for in there
    return PATH, merged


def _encode_settings(request: Request, dialect: Dialect) -> dict[str, Any]:
    settings = request.settings
    body: dict[str, Any] = {}
    if settings.max_output_tokens is not None:
        body[dialect.max_tokens] = settings.max_output_tokens
    stops_by_field = dialect.no_effort == "thinking" and abilities_of(request.model).thinking_off != "never"
    wanted = _wanted_effort(request)
    effort: str | None = None
    if wanted == "none" and stops_by_field:
        body["thinking"] = {"type": "disabled"}
    elif wanted and (effort := nearest_effort(request.model, wanted)):
        body["reasoning_effort"] = effort
    temperature = temperature_beside(request.model, settings.temperature, effort)
    if temperature is not None:
        body["temperature"] = temperature
    if settings.stop:
        body["stop"] = list(settings.stop)
    # Not to a server that only speaks like OpenAI: it may refuse the field.
    if settings.cache and dialect.cache_key and request.conversation_id and not request.model.base_url:
        body["prompt_cache_key"] = cache_key(request.conversation_id)
    if settings.stream:
        body["stream"] = True
        if dialect.stream_usage:
            body["stream_options"] = {"include_usage": True}
    return body


def _wanted_effort(request: Request) -> str | None:
    """The effort that is asked for, which beside some tools can only be none."""
    wanted = request.settings.reasoning_effort
    model = UNKNOWN if request.model.base_url else abilities_of(request.model)
    if searches_without_thinking(request):
        instead = "It searches, and for that it may not think."
    elif request.tools and not model.effort_beside_calls and "none" in (model.efforts or ()):
        instead = "It has tools, and by Chat Completions it does not think beside them: 'openai:' does."
    else:
        return wanted
    if wanted not in {None, "none"}:
        warn_unsupported(request.model, f"reasoning_effort={wanted!r}", instead)
    return "none"


def _encode_tools(request: Request, dialect: Dialect) -> dict[str, Any]:
    function_tools = [_encode_tool(tool, request.model, dialect) for tool in request.tools]
    served, fields = encode_server_tools(request, dialect)
    tools = [*function_tools, *served, *map(dict, request.raw_tools)]
    if not tools:
        return fields
    body: dict[str, Any] = {"tools": tools, **fields}
    choice = "none" if request.conclude else request.settings.tool_choice
    forced = dialect.required != "auto" and abilities_of(request.model).forced_tools
    if choice not in {None, "auto", "none"} and not forced:
        warn_unsupported(
            request.model,
            f"tool_choice={choice!r}",
            "It is asked with 'auto' instead, so it may answer without a call.",
        )
        choice = "auto"
    if choice == "required":
        body["tool_choice"] = dialect.required
    elif choice in {"auto", "none"}:
        body["tool_choice"] = choice
    elif choice:
        body["tool_choice"] = {"type": "function", "function": {"name": choice}}
    if dialect.parallel and request.settings.parallel_calls is not None:
        body["parallel_tool_calls"] = request.settings.parallel_calls
    elif request.settings.parallel_calls is False:
        warn_unsupported(request.model, "parallel_calls=False")
    return body


def _encode_tool(tool: ToolSpec, model: Model, dialect: Dialect) -> dict[str, Any]:
    # Unless it is asked for, `strict` stays out: several servers refuse the field, and without it OpenAI takes the
    # schema as it is.
    function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    more = tool_options(model, tool, *(("strict",) if dialect.strict_tools else ()))
    return {"type": "function", "function": function | only_fitting(model, tool, more)}


def _response_format(request: Request, dialect: Dialect) -> dict[str, Any]:
    """The `response_format`; empty if there is none."""
    schema = request.output_schema
    if schema is None or not request.grammars or dialect.output == "words":
        return {}
    if may_call(request) and grammar_over_calls(request.model):
        return {}
    if dialect.output == "json_object":
        return {"type": "json_object"}
    name = plain_name(str(schema.get("title", "")), otherwise="output")
    return {
        "type": "json_schema",
        "json_schema": {"name": name, "schema": dict(schema), "strict": fits_strict(schema)},
    }
