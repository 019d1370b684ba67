"""Anthropic Messages: settings and tools in its words, and what its models can't do.

What a model can do is in `vendor_models/abilities.py`. Names that are not Claude's belong to other servers with this
protocol: their requests carry every setting as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from everturn.errors import InvalidTool
from everturn.providers.base import Request, ToolSpec, tool_options, warn_unsupported
from everturn.providers.json_values import write_json
from everturn.tools.options import ToolOptions
from everturn.tools.server_tools import CodeExecution, ServerTool, WebSearch
from everturn.validation.open_objects import takes_more
from everturn.validation.schema_references import references_in
from everturn.validation.sub_schemas import declared_types
from everturn.vendor_models.abilities import Abilities, abilities_of, untaken_error

_BUDGETS: Final = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 16_384, "xhigh": 32_768, "max": 32_768}
_MIN_BUDGET: Final = 1024


def option_fields(request: Request, *, thoughtless: bool) -> dict[str, Any]:
    """The fields of the body that come from the settings.

    `thoughtless`: the transcript ends within a turn that began without a thought of this provider's.
    Warns of what the model can't do (UnsupportedParameter), and leaves it out.
    """
    settings = request.settings
    model = abilities_of(request.model)
    body: dict[str, Any] = {"max_tokens": settings.max_output_tokens or model.max_tokens}
    choice = _tool_choice(request, model)
    thinking = _thinking_config(request, model, max_tokens=body["max_tokens"], choice=choice, thoughtless=thoughtless)
    if thinking:
        body["thinking"] = thinking
    output: dict[str, Any] = {}
    if thinking and thinking["type"] == "adaptive":
        output["effort"] = _effort_level(settings.reasoning_effort or "", model)
    if request.output_schema is not None and request.grammars and (schema := _output_format(request, model)):
        output["format"] = {"type": "json_schema", "schema": schema}
    if output:
        body["output_config"] = output
    body |= _temperature_field(request, model, thinking)
    if settings.stop:
        body["stop_sequences"] = list(settings.stop)
    if choice:
        body["tool_choice"] = choice
    return body


def encode_tools(request: Request) -> list[dict[str, Any]]:
    """The tools. Raises InvalidTool for one that Anthropic does not have, or two of one name."""
    entries = [
        *(_encode_tool(tool, request) for tool in request.tools),
        *(_server_tool(tool, request) for tool in request.server_tools),
        *map(dict, request.raw_tools),
    ]
    names = Counter(str(tool["name"]) for tool in entries if tool.get("name"))
    if twice := [name for name, count in names.items() if count > 1]:
        raise InvalidTool(
            f"{request.model.name!r} has two tools named {twice[0]!r}.",
            cure="Give one of them another name. Anthropic's server-side tools are "
            "named web_search and code_execution.",
        )
    return entries


def _encode_tool(tool: ToolSpec, request: Request) -> dict[str, Any]:
    encoded: dict[str, Any] = {"name": tool.name}
    if tool.description:
        encoded["description"] = tool.description
    encoded["input_schema"] = {"type": "object", **tool.parameters}
    more = tool_options(request.model, tool, *ToolOptions.model_fields, callers=("direct", "code_execution"))
    return encoded | more


def _server_tool(tool: ServerTool, request: Request) -> dict[str, Any]:
    # The first versions: every model takes them, and none needs a beta header. Later ones come as raw dicts.
    match tool:
        case WebSearch():
            return {"type": "web_search_20250305", "name": "web_search", **dict(_search_fields(tool, request))}
        case CodeExecution():
            return {"type": "code_execution_20250825", "name": "code_execution"}
        case _:
            raise untaken_error(request.model, type(tool).__name__)


def _search_fields(tool: WebSearch, request: Request) -> Iterator[tuple[str, Any]]:
    if tool.allowed_domains:
        yield "allowed_domains", list(tool.allowed_domains)
    if tool.blocked_domains and tool.allowed_domains:
        warn_unsupported(request.model, "WebSearch(blocked_domains=) beside allowed_domains")
    elif tool.blocked_domains:
        yield "blocked_domains", list(tool.blocked_domains)
    if tool.max_uses is not None:
        yield "max_uses", tool.max_uses
    if tool.user_location:
        yield "user_location", {"type": "approximate", **tool.user_location}
    if tool.context_size is not None:
        warn_unsupported(request.model, "WebSearch(context_size=)")


def _tool_choice(request: Request, model: Abilities) -> dict[str, Any]:
    settings = request.settings
    if not (request.tools or request.server_tools or request.raw_tools):
        return {}
    wanted = "none" if request.conclude else settings.tool_choice
    if wanted not in {None, "auto", "none"} and not model.forced_tools:
        warn_unsupported(
            request.model,
            f"tool_choice={wanted!r}",
            "It is asked with 'auto' instead, so it may answer without a call.",
        )
        wanted = "auto"
    choice: dict[str, Any]
    match wanted:
        case "none":
            return {"type": "none"}
        case None if settings.parallel_calls is not False:
            return {}
        case None | "auto":
            choice = {"type": "auto"}
        case "required":
            choice = {"type": "any"}
        case name:
            choice = {"type": "tool", "name": name}
    if settings.parallel_calls is False:
        choice["disable_parallel_tool_use"] = True
    return choice


def _thinking_config(
    request: Request, model: Abilities, *, max_tokens: int, choice: Mapping[str, Any], thoughtless: bool
) -> dict[str, Any]:
    effort = request.settings.reasoning_effort
    setting = f"reasoning_effort={effort!r}"
    if effort is None:
        return {}
    if effort == "none":
        if model.thinking_off == "never":
            warn_unsupported(request.model, setting)
        if model.thinking_off in {"disabled", "between_tools"}:
            return {"type": model.thinking_off}
        return {}
    if not model.budget:
        return {"type": "adaptive"}
    # Those who think by a budget refuse it beside a forced call, and in a turn that began without a thought. The
    # forced call stays: a program may lean on it.
    budget = min(_BUDGETS[effort], max_tokens // 2)
    if model.efforts == ():
        warn_unsupported(request.model, setting)
    elif choice.get("type") in {"any", "tool"}:
        warn_unsupported(request.model, f"{setting} beside tool_choice={request.settings.tool_choice!r}")
    elif thoughtless:
        warn_unsupported(request.model, f"{setting} in a turn that another model began, or that began without thinking")
    elif budget < _MIN_BUDGET:
        warn_unsupported(
            request.model, f"{setting} beside max_output_tokens={max_tokens}, which is under {2 * _MIN_BUDGET}"
        )
    else:
        return {"type": "enabled", "budget_tokens": budget}
    return {}


def _effort_level(effort: str, model: Abilities) -> str:
    """The nearest level that the model has. No model has 'minimal'."""
    if effort == "xhigh" and model.efforts is not None and "xhigh" not in model.efforts:
        return "max"
    if effort == "minimal":
        return "low"
    return effort


def _temperature_field(request: Request, model: Abilities, thinking: Mapping[str, Any]) -> dict[str, Any]:
    temperature = request.settings.temperature
    if temperature is None:
        return {}
    effort = "any" if thinking.get("type") in {"enabled", "adaptive"} else "none"
    if model.takes_temperature(effort):
        return {"temperature": temperature}
    beside = "" if model.sampling == "never" else " beside reasoning_effort"
    warn_unsupported(request.model, f"temperature={temperature}{beside}")
    return {}


def _output_format(request: Request, model: Abilities) -> dict[str, Any] | None:
    """The schema as Anthropic takes it; None, with a warning, if it does not."""
    try:
        if model.output_schema:
            schema = _strict_schema(request.output_schema or {})
            _check_recursion(schema)
            return schema
        reason = "this model has no output schemas"
    except _Unfit as error:
        reason = str(error)
    warn_unsupported(request.model, f"an output schema ({reason})", "The model reads it instead.")
    return None


class _Unfit(ValueError):
    """A schema that can't be expressed in the part of JSON schema that Anthropic knows without changing its meaning."""


_KEPT: Final = frozenset({"type", "enum", "const", "description", "title", "required"})
_PLACED: Final = frozenset({"$defs", "anyOf", "allOf", "oneOf", "properties", "additionalProperties", "items"})
_REMARKS: Final = frozenset({"default", "examples", "discriminator", "deprecated", "readOnly", "$schema", "$id"})
"""Keywords that do not restrict a value."""
_FORMATS: Final = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"}
)


def _strict_schema(schema: Any) -> dict[str, Any]:
    """`schema` with every object closed, and each rule that Anthropic does not know moved into the description.

    The model still reads it there. Whoever asked for the schema checks the reply anyway.
    """
    if not isinstance(schema, Mapping):
        raise _Unfit(f"it has {schema!r} in the place of a schema")
    strict: dict[str, Any] = {}
    if "$defs" in schema:
        strict["$defs"] = {name: _strict_schema(inner) for name, inner in schema["$defs"].items()}
    if "$ref" in schema:
        if not str(schema["$ref"]).startswith("#/$defs/"):
            raise _Unfit("it refers to more than its $defs")
        return strict | {"$ref": schema["$ref"]}
    for name, known_as in {"anyOf": "anyOf", "allOf": "allOf", "oneOf": "anyOf"}.items():
        if name in schema:
            strict[known_as] = [_strict_schema(inner) for inner in schema[name]]
    if not (strict.keys() - {"$defs"} or schema.keys() & {"type", "enum", "const"}):
        raise _Unfit("it has a value without a type")
    if "object" in declared_types(schema):
        strict |= _closed_object(schema)
    if "items" in schema:
        strict["items"] = _strict_schema(schema["items"])
    other_rules: dict[str, Any] = {}
    for name, value in schema.items():
        if name in _KEPT or (name == "format" and value in [*_FORMATS]) or (name == "minItems" and value in {0, 1}):
            strict[name] = value
        elif name not in _PLACED | _REMARKS:
            other_rules[name] = value
    if other_rules:
        rules = f"Must fit {write_json(other_rules).decode()}"
        if strict.get("description"):
            rules = f"{strict['description']} {rules}"
        strict["description"] = rules
    return strict


def _closed_object(schema: Mapping[str, Any]) -> dict[str, Any]:
    if takes_more(schema) or schema.keys() & {"patternProperties"}:
        raise _Unfit("it has an object whose keys are not listed")
    properties: Mapping[str, Any] = schema.get("properties", {})
    if not properties and takes_more(schema) is None and "properties" not in schema:
        raise _Unfit("it has an object whose keys are not listed")
    return {
        "properties": {name: _strict_schema(inner) for name, inner in properties.items()},
        "additionalProperties": False,
    }


def _check_recursion(schema: Mapping[str, Any]) -> None:
    """Raises _Unfit if a definition leads back to itself."""
    leads_to = {f"#/$defs/{name}": set(references_in(inner)) for name, inner in schema.get("$defs", {}).items()}
    for start in leads_to:
        met: set[str] = set()
        names_ahead = [start]
        while names_ahead:
            for name in leads_to.get(names_ahead.pop(), ()):
                if name == start:
                    raise _Unfit("it is recursive")
                if name not in met:
                    met.add(name)
                    names_ahead.append(name)
