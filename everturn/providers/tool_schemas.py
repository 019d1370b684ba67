"""Tools' JSON schemas as providers take them. A schema that one refuses is a 400 for every turn of each conversation
that has the tool; so it is rewritten where its meaning stays, and its arguments are read back by their own names. A
tool whose schema can't be rewritten is left out, with a warning.

What is refused, by the providers' own error texts:
- OpenAI, Chat and Responses: "schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the
  top level" (langchainjs#9804, 2026-01); "array schema missing items".
- Anthropic: "input_schema does not support oneOf, allOf, or anyOf at the top level" (opencode#37916, 2026-07); names of
  properties outside of letters, digits, "_", "." and "-", 1 to 64 of them (its page on self-hosted sandboxes, 2026-09).
Servers that speak like these have the same checks, or fewer.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from operator import is_
from typing import Any, Final

from everturn.providers.base import Request, ToolSpec, warn_unsupported
from everturn.providers.catalog import row_of
from everturn.providers.json_values import mend_texts, parse_json
from everturn.records import Reply, ToolCall
from everturn.sizes import shortened
from everturn.system.json_numbers import compact_json, place_of_odd_number

Schema = dict[str, Any]

_PLAIN_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_.-]")

_CHOICES: Final = ("anyOf", "oneOf")
_AT_THE_TOP: Final = ("anyOf", "oneOf", "allOf", "not", "if", "then", "else", "enum", "const", "dependentSchemas")
"""Keywords that the top of a schema may not have."""

_SCHEMAS_BY_NAME: Final = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
_SCHEMAS: Final = ("anyOf", "oneOf", "allOf", "prefixItems")
_SCHEMA: Final = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")

_MAX_RULE_BYTES: Final = 2_000
_MOST_REFERENCES: Final = 20


class Unwritable(Exception):
    """The schema has no form that providers take. The message says why."""


def fit_schemas(request: Request) -> Request:
    """The request with schemas that its provider takes; the same if it takes all. Warns of each tool that is left
    out."""
    renames = row_of(request.model.provider).protocol == "anthropic_messages"
    tools: list[ToolSpec] = []
    for tool in request.tools:
        try:
            tools.append(_fitted_tool(tool, renames=renames))
        except Unwritable as error:
            warn_unsupported(
                request.model, f"the schema of the tool {tool.name!r} ({error})", "The tool is left out of the request."
            )
    output = request.output_schema and with_items(request.output_schema)
    same = len(tools) == len(request.tools) and all(map(is_, tools, request.tools))
    if same and output is request.output_schema:
        return request
    return replace(request, tools=tuple(tools), output_schema=output)


def undo_fit_schemas(reply: Reply, request: Request) -> Reply:
    """The reply with the arguments by their own names, and with objects and lists in place of their JSON. `request`: as
    it was before `fit_schemas`."""
    schemas = {tool.name: tool.parameters for tool in request.tools}
    parts = [
        _undo_fitted_call(part, schemas[part.name]) if isinstance(part, ToolCall) and part.name in schemas else part
        for part in reply.message.parts
    ]
    if all(map(is_, parts, reply.message.parts)):
        return reply
    return reply.model_copy(update={"message": reply.message.model_copy(update={"parts": tuple(parts)})})


def _fitted_tool(tool: ToolSpec, *, renames: bool) -> ToolSpec:
    schema, rules = top_level_object(tool.parameters)
    schema = with_items(schema)
    if renames:
        schema = _with_plain_names(schema)
    if schema is tool.parameters:
        return tool
    described = "\n\n".join(filter(None, [tool.description, *rules]))
    return replace(tool, description=described, parameters=schema)


# ---------------------------------------------------------------- the top


def top_level_object(given: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[str]]:
    """The schema as one object, without choices at its top, and the rules that it lost by that, in words. Raises
    Unwritable."""
    if given.get("type") == "object" and not given.keys() & {*_AT_THE_TOP, "$ref"}:
        return given, []
    definitions = {**(given.get("definitions") or {}), **(given.get("$defs") or {})}
    schema = _flatten_branches(_resolve_reference(given, definitions), definitions)
    rules = []
    leftover = {name: schema.pop(name) for name in _AT_THE_TOP if name in schema}
    for word in _CHOICES:
        if branches := leftover.pop(word, None):
            _add_choice(
                schema, [_flatten_branches(_resolve_reference(branch, definitions), definitions) for branch in branches]
            )
            rules.append(f"The arguments have to fit {_ONE_OF[word]}: {_rule_text(branches)}")
    if leftover:
        rules.append(f"The arguments have to fit this JSON schema, too: {_rule_text(leftover)}")
    kind = schema.get("type", "object")
    if kind != "object" and not (isinstance(kind, list) and "object" in kind):
        raise Unwritable(f"its arguments are no object, but {kind!r}")
    schema["type"] = "object"
    schema.setdefault("properties", {})
    return schema, rules


_ONE_OF: Final = {"anyOf": "at least one of these JSON schemas", "oneOf": "exactly one of these JSON schemas"}


def _rule_text(value: Any) -> str:
    return shortened(compact_json(value), max_bytes=_MAX_RULE_BYTES)


def _resolve_reference(schema: Any, definitions: Mapping[str, Any]) -> Schema:
    """The schema that a reference leads to, with what is beside it. Raises Unwritable."""
    if not isinstance(schema, Mapping):
        return {}
    resolved = dict(schema)
    for _ in range(_MOST_REFERENCES):
        reference = resolved.pop("$ref", None)
        if reference is None:
            return resolved
        name = str(reference).removeprefix("#/$defs/").removeprefix("#/definitions/")
        target = definitions.get(name)
        if not isinstance(target, Mapping):
            raise Unwritable(f"its $ref {str(reference)[:100]!r} leads nowhere")
        resolved = {**target, **resolved}
    raise Unwritable("its $ref leads to itself")


def _flatten_branches(schema: Schema, definitions: Mapping[str, Any]) -> Schema:
    """The schema with what `allOf` says in it, as far as that describes properties."""
    branches = schema.pop("allOf", None) or ()
    for branch in branches:
        inside = _flatten_branches(_resolve_reference(branch, definitions), definitions)
        _add_properties(schema, inside.pop("properties", None) or {})
        if required := inside.pop("required", None):
            schema["required"] = [*dict.fromkeys([*schema.get("required", ()), *required])]
        for word in _CHOICES:
            if word in inside and word in schema:
                schema.setdefault("allOf", []).append({word: inside.pop(word)})
        for name, value in inside.items():
            schema.setdefault(name, value)
    return schema


def _add_choice(schema: Schema, branches: Sequence[Schema]) -> None:
    """Adds the properties of all branches; what all of them require is required."""
    objects = [branch for branch in branches if branch.get("type", "object") == "object"]
    if not objects:
        raise Unwritable("none of its choices is an object")
    for branch in objects:
        _add_properties(schema, branch.get("properties") or {})
    needed = set.intersection(*(set(branch.get("required") or ()) for branch in objects))
    required = [*schema.get("required", ()), *(name for name in (objects[0].get("required") or ()) if name in needed)]
    if required:
        schema["required"] = [*dict.fromkeys(required)]
    if any(branch.get("additionalProperties", True) is not False for branch in objects) and "properties" not in schema:
        schema.setdefault("additionalProperties", True)


def _add_properties(schema: Schema, more: Mapping[str, Any]) -> None:
    known = dict(schema.get("properties") or {})
    for name, value in more.items():
        if name not in known or known[name] in (True, {}):
            known[name] = value
        elif known[name] != value and value not in (True, {}):
            before = known[name]
            listed = [before]
            if isinstance(before, Mapping) and before.keys() == {"anyOf"}:
                listed = [*before["anyOf"]]
            if value not in listed:
                listed.append(value)
            known[name] = {"anyOf": listed}
    if known:
        schema["properties"] = known


# ---------------------------------------------------------------- arrays


def with_items(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema with `items` as one schema in each of its arrays; the same if they have it."""
    filled: Mapping[str, Any] = _each_schema(schema, with_items)
    kind = filled.get("type")
    is_array = kind == "array" or (isinstance(kind, list) and "array" in kind)
    if not is_array or (isinstance(filled.get("items"), Mapping) and "prefixItems" not in filled):
        return filled
    items = filled.get("items")
    prefix = filled.get("prefixItems")
    if prefix is None and isinstance(items, list):  # as JSON Schema wrote it before 2020
        prefix = items
        items = filled.get("additionalItems")
    array = {name: value for name, value in filled.items() if name not in ("prefixItems", "additionalItems")}
    if not prefix:
        return {**array, "items": _as_schema(items)}
    further = [items] if isinstance(items, Mapping) else []
    kinds = [with_items(_as_schema(schema)) for schema in [*prefix, *further]]
    different = [kind for place, kind in enumerate(kinds) if kind not in kinds[:place]]
    array["items"] = different[0] if len(different) == 1 else {"anyOf": different}
    if not further:
        array.setdefault("maxItems", len(prefix))
    if len(different) > 1:
        order = f"In this order: {_rule_text(list(prefix))}"
        if array.get("description"):
            order = f"{array['description']} {order}"
        array["description"] = order
    return array


def _as_schema(value: object) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    return {}


def _each_schema(schema: Mapping[str, Any], change: Any) -> Mapping[str, Any]:
    """The schema with `change` made to each schema that it holds; the same if nothing changed."""

    def change_schema(inner: Any) -> Any:
        return change(inner) if isinstance(inner, Mapping) else inner

    rebuilt = dict(schema)
    for name in _SCHEMAS_BY_NAME:
        if isinstance(inside := schema.get(name), Mapping):
            rebuilt[name] = {key: change_schema(inner) for key, inner in inside.items()}
    for name in _SCHEMAS:
        if isinstance(listed := schema.get(name), list):
            rebuilt[name] = [change_schema(inner) for inner in listed]
    for name in _SCHEMA:
        if name in schema:
            rebuilt[name] = change_schema(schema[name])
    return schema if rebuilt == schema else rebuilt


# ---------------------------------------------------------------- names


def plain_property(name: str) -> str:
    """A property's name in Anthropic's alphabet: unchanged if possible, else one that no other name turns into."""
    if _PLAIN_NAME.fullmatch(name):
        return name
    marked = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:6]
    return f"{_NOT_IN_NAMES.sub('_', name)[:50].strip('_') or 'name'}_{marked}"


def _with_plain_names(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    renamed = dict(_each_schema(schema, _with_plain_names))
    properties = renamed.get("properties")
    if isinstance(properties, Mapping) and any(plain_property(name) != name for name in properties):
        renamed["properties"] = {
            plain_property(name): _describe_rename(name, inner) for name, inner in properties.items()
        }
        if isinstance(required := renamed.get("required"), list):
            renamed["required"] = [plain_property(name) for name in required]
    return schema if renamed == schema else renamed


def _describe_rename(name: str, schema: Any) -> Any:
    """The schema of a property that has another name now: its description says which."""
    if plain_property(name) == name or not isinstance(schema, Mapping):
        return schema
    description = f"(Named {name[:200]!r}.)"
    if schema.get("description"):
        description = f"{schema['description']} {description}"
    return {**schema, "description": description}


def _undo_fitted_call(call: ToolCall, schema: Mapping[str, Any]) -> ToolCall:
    definitions = {**(schema.get("definitions") or {}), **(schema.get("$defs") or {})}
    arguments = _undo_fitted_value(call.arguments, schema, definitions)
    if arguments == call.arguments:
        return call
    return call.model_copy(update={"arguments": arguments})


def _undo_fitted_value(value: Any, schema: Any, definitions: Mapping[str, Any]) -> Any:
    schemas = [*_same_value_schemas(schema, definitions, depth=_MOST_REFERENCES)]
    if isinstance(value, str):
        value = _unquoted(value, schemas)
    if isinstance(value, dict):
        known = {name: inner for inside in schemas for name, inner in (inside.get("properties") or {}).items()}
        by_wire = {plain_property(name): name for name in known if name not in value}
        others = next((inner for inside in schemas if (inner := inside.get("additionalProperties"))), None)
        own = {name: by_wire.get(name, name) for name in value}
        return {
            own[name]: _undo_fitted_value(item, known.get(own[name], others), definitions)
            for name, item in value.items()
        }
    if isinstance(value, list):
        items = [inside.get("items") for inside in schemas if isinstance(inside.get("items"), Mapping)]
        if not items:
            return value
        return [_undo_fitted_value(item, {"anyOf": items}, definitions) for item in value]
    return value


def _unquoted(text: str, schemas: Sequence[Mapping[str, Any]]) -> Any:
    """The object or list whose JSON this is, if the schema takes such a one and no text.

    Some servers take whatever is behind a `$ref` for a text: the parsers of GLM's, Qwen's and DeepSeek's calls in vLLM
    (its issue 46924, 2026-06), and Z.ai's own GLM-5.3 (pydantic-ai's issue 10243). The model can't mend that.
    """
    kinds = {kind for schema in schemas for kind in _kinds_of(schema)}
    if "string" in kinds or not kinds & {"object", "array"} or text.lstrip()[:1] not in {"{", "["}:
        return text
    try:
        value = mend_texts(parse_json(text))
    except ValueError:
        return text
    fits = "object" in kinds if isinstance(value, dict) else "array" in kinds
    return value if fits and place_of_odd_number(value) is None else text


def _kinds_of(schema: Mapping[str, Any]) -> Iterator[str]:
    """The types that a schema takes by its own words; string of one that says nothing, which takes anything."""
    if kinds := schema.get("type"):
        yield from [kinds] if isinstance(kinds, str) else kinds
    elif "properties" in schema:
        yield "object"
    elif "items" in schema:
        yield "array"
    elif not schema.keys() & {"$ref", "anyOf", "oneOf", "allOf"}:
        yield "string"


def _same_value_schemas(schema: Any, definitions: Mapping[str, Any], *, depth: int) -> Iterator[Mapping[str, Any]]:
    """The schema, and those that it refers to or chooses from, for the same value."""
    if not isinstance(schema, Mapping) or not depth:
        return
    yield schema
    reference = schema.get("$ref")
    if isinstance(reference, str):
        yield from _same_value_schemas(definitions.get(reference.rpartition("/")[2]), definitions, depth=depth - 1)
    for word in ("anyOf", "oneOf", "allOf"):
        for branch in schema.get(word) or ():
            yield from _same_value_schemas(branch, definitions, depth=depth - 1)
