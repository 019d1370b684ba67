"""A tool call as any vendor writes it: Chat, Responses, Messages, Gemini, as dicts or as their SDKs' objects.

Plain values in, plain values out; what they become is a ToolCall, in `records`.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from everturn.system.json_numbers import parse_json, place_of_odd_number
from everturn.text.shortening import clipped

TAKES = (
    "an OpenAI tool call (a function or a custom one), a Responses function_call or custom_tool_call item, "
    "an Anthropic tool_use or server_tool_use block, a Gemini functionCall, or a call of another library "
    "with a name and arguments"
)

# What an object without model_dump() is asked for.
_ATTRIBUTES: tuple[str, ...] = (
    "type",
    "id",
    "call_id",
    "name",
    "input",
    "args",
    "arguments",
    "caller",
    "namespace",
    "function",
)
_ATTRIBUTES += ("custom", "functionCall", "function_call", "thoughtSignature", "thought_signature", "extra_content")
_ATTRIBUTES += ("parameters", "kwargs", "tool_name", "tool_call_id", "part_kind")

ARGUMENTS = ("args", "arguments", "input", "parameters")
"""What the arguments are called: by Gemini; by OpenAI, MCP and many a local model; by Anthropic; by Llama."""

_OTHER_NAMES: dict[str, tuple[str, ...]] = {
    "name": ("tool_name", "toolName"),
    "id": ("tool_call_id", "toolCallId", "toolUseId", "tool_id"),
    "arguments": ("tool_kwargs", "tool_input"),
}
"""What other libraries call a call's fields: pydantic-ai 2.68 (`tool_name`, `tool_call_id`), haystack 3.4
(`tool_name`), the AI SDK 7 (`toolName`, `toolCallId`), Bedrock's Converse (`toolUseId`), LlamaIndex 0.14 (`tool_id`,
`tool_kwargs`), toolregistry 0.19 (its `to_ir()`: `tool_input`)."""

_NAMED_BESIDE = frozenset({None, "function", "tool_call", "tool-call"})
"""The `type` of calls whose name is beside it, and in no object of its own: none; toolregistry 0.19 and smolagents;
LangChain 1.7; pydantic-ai and the AI SDK."""

_BESIDE = frozenset({"type", "id", "call_id", "name", "_meta", "partialArgs", "partial_args", "willContinue"})
_BESIDE |= {"will_continue", *ARGUMENTS}
_BESIDE |= {"part_kind", "tool_kind", "provider_name", "provider_details", "tool_type", "extra", "index"}
_BESIDE |= {"providerExecuted", "providerOptions", "providerMetadata", "dynamic"}
"""The fields of a call that does not say that it is one. With any other field, it is something else."""

_MAX_SHOWN = 120


@dataclass(frozen=True, slots=True)
class VendorCall:
    """`arguments`: the JSON object, or None if `unparsed`, the text as received, holds none."""

    id: str | None
    name: str
    arguments: dict[str, Any] | None
    unparsed: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    """The fields beside the call, by the vendor's names; `type` if it is not the usual one."""


def read_call(given: object) -> VendorCall:
    """The call in `given`; raises TypeError for anything else."""
    fields = _usual_names(as_dict(given))
    match fields.get("type"):
        case None if inner := fields.get("functionCall") or fields.get("function_call"):
            return _gemini_call(
                as_dict(inner), given, signature=_first_field(fields, "thoughtSignature", "thought_signature")
            )
        case None if "name" not in fields and (inner := fields.get("toolUse")):  # Bedrock's Converse
            return _gemini_call(_usual_names(as_dict(inner)), given)
        case kind if kind in _NAMED_BESIDE and "function" not in fields and "name" in fields:
            _check_untold(fields, given)
            return _gemini_call(fields, given)
        case "custom" if "custom" not in fields and isinstance(fields.get("name"), str):  # toolregistry's
            arguments, unparsed = _arguments_of(fields, given)
            return _make_call(given, fields.get("id"), fields, arguments, unparsed=unparsed, extra={"type": "custom"})
        case "function" | None if "function" in fields:
            return _openai_chat(fields, given)
        case "custom":
            custom = as_dict(fields.get("custom"))
            return _make_call(given, fields.get("id"), custom, {"input": custom.get("input")}, extra={"type": "custom"})
        case "function_call":
            arguments, unparsed = _arguments_of(fields, given)
            extra = _other_fields(fields, "type", "call_id", "name", *ARGUMENTS)
            # Google's Interactions have an `id` only, which their results name.
            call_id = fields.get("call_id") or extra.pop("id", None)
            return _make_call(given, call_id, fields, arguments, unparsed=unparsed, extra=extra)
        case "custom_tool_call":
            extra = {"type": "custom_tool_call", **_other_fields(fields, "type", "call_id", "name", "input")}
            return _make_call(given, fields.get("call_id"), fields, {"input": fields.get("input")}, extra=extra)
        case "tool_use" | "server_tool_use" as kind:
            arguments, unparsed = _arguments_of(fields, given)
            extra = _other_fields(fields, "type", "id", "name", *ARGUMENTS)
            if kind != "tool_use":
                extra["type"] = kind
            return _make_call(given, fields.get("id"), fields, arguments, unparsed=unparsed, extra=extra)
    raise _not_a_call(given)


def read_arguments(given: object) -> tuple[dict[str, Any] | None, str | None]:
    """A JSON object from an object or from text; if the text holds none, None and the text."""
    if given is None or (isinstance(given, str) and not given.strip()):
        return {}, None
    if isinstance(given, str):
        try:
            value = parse_json(given)
        except (ValueError, RecursionError):
            return None, given
        if value is None:  # Groq's "null" for no arguments
            return {}, None
        return (value, None) if isinstance(value, dict) else (None, given)
    fields = as_dict(given)
    is_object = bool(fields) or isinstance(given, Mapping)
    if is_object and place_of_odd_number(fields) is None:
        return fields, None
    return None, json.dumps(fields if is_object else given, default=str)


def _arguments_of(fields: Mapping[str, Any], given: object) -> tuple[dict[str, Any] | None, str | None]:
    """`read_arguments` of the field that has them, whichever of the usual names it goes by.

    Raises TypeError if they can't be told: none of these names and another that may be it, two of them with different
    values, or a JSON schema, as the definition of a tool has.
    """
    candidates = [fields[name] for name in ARGUMENTS if fields.get(name) not in (None, "", {})]
    if any(candidate != candidates[0] for candidate in candidates[1:]) or any(map(_is_schema, candidates)):
        raise _not_a_call(given)
    if not candidates and "kwargs" in fields:
        raise _not_a_call(given, "; its arguments have to be called 'arguments', not 'kwargs'")
    if not candidates:
        return {}, None
    return read_arguments(candidates[0])


def _is_schema(value: object) -> bool:
    return isinstance(value, Mapping) and value.get("type") == "object" and isinstance(value.get("properties"), Mapping)


def _usual_names(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields by the names that most vendors give them, if they have those of another library."""
    renamed = dict(fields)
    for usual, others in _OTHER_NAMES.items():
        for other in others:
            if other in renamed and (usual != "name" or not renamed.get(usual)):
                value = renamed.pop(other)
                # pydantic-ai's part may have both ids: the call's, and that of the provider's item.
                renamed[usual] = value if value is not None else renamed.get(usual)
    return renamed


def _check_untold(fields: Mapping[str, Any], given: object) -> None:
    """A name alone does not make a call: a user, a file and a tool's definition have one, too."""
    if fields.get("type") == "function" and not fields.keys() & {"args", "arguments", "input"}:
        raise _not_a_call(given)  # Responses writes the definition of a tool so
    if strange := sorted(fields.keys() - _BESIDE):
        raise _not_a_call(given, f"; {strange[0]!r} is no field of a call")
    known = isinstance(given, Mapping) or hasattr(given, "model_dump")
    if not known and not any(hasattr(given, name) for name in ARGUMENTS):
        raise _not_a_call(given)


def as_dict(value: object) -> dict[str, Any]:
    """An object's fields: of a mapping, of what has model_dump() (every vendor's SDK), else by attributes."""
    if isinstance(value, Mapping):
        return {str(name): _plain_json(item) for name, item in value.items()}
    if isinstance(value, type) or value is None or isinstance(value, str | bytes | int | float | list | tuple):
        return {}
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        try:
            dumped = dump(mode="json", by_alias=True, exclude_none=True, warnings=False)
        except TypeError:  # not pydantic's own
            dumped = dump()
        return as_dict(dumped)
    attributes = {name: getattr(value, name, None) for name in _ATTRIBUTES}
    return {
        name: item if name in {"function", "custom"} else _plain_json(item) for name, item in attributes.items() if item
    }


def _plain_json(value: object) -> Any:
    """JSON all the way down: SDKs put their own objects, protobuf maps and bytes into dicts."""
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, Mapping) or hasattr(value, "model_dump"):
        return as_dict(value)
    if isinstance(value, list | tuple):
        return [_plain_json(item) for item in value]
    return value


def _openai_chat(fields: dict[str, Any], given: object) -> VendorCall:
    function = as_dict(fields["function"])
    if strange := sorted(function.keys() - {"name"}) if not function.keys() & set(ARGUMENTS) else []:
        raise _not_a_call(given, f"; {strange[0]!r} is no field of a function")
    arguments, unparsed = _arguments_of(function, given)
    extra = _other_fields(fields, "type", "id", "index", "function")
    return _make_call(given, fields.get("id"), function, arguments, unparsed=unparsed, extra=extra)


def _gemini_call(fields: dict[str, Any], given: object, *, signature: object = None) -> VendorCall:
    arguments, unparsed = _arguments_of(fields, given)
    extra = {"thoughtSignature": signature} if signature else {}
    return _make_call(
        given, fields.get("id") or fields.get("call_id"), fields, arguments, unparsed=unparsed, extra=extra
    )


def _make_call(
    given: object,
    call_id: object,
    named: Mapping[str, Any],
    arguments: dict[str, Any] | None,
    *,
    unparsed: str | None = None,
    extra: dict[str, Any],
) -> VendorCall:
    name = named.get("name")
    if not isinstance(name, str) or not name:
        raise _not_a_call(given)
    return VendorCall(str(call_id) if call_id else None, name, arguments, unparsed, extra)


def _other_fields(fields: Mapping[str, Any], *known: str) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in known and value is not None}


def _first_field(fields: Mapping[str, Any], *names: str) -> Any:
    return next((fields[name] for name in names if fields.get(name)), None)


def _not_a_call(given: object, detail: str = "") -> TypeError:
    excerpt = clipped(repr(given), _MAX_SHOWN)
    return TypeError(f"ToolCall.parse got {excerpt}, of type {type(given).__name__}{detail}. It takes {TAKES}.")
