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
from functools import lru_cache
from operator import is_
from typing import Any, Final, TypeGuard

from everturn.providers.base import Request, ToolSpec, warn_unsupported
from everturn.providers.catalog import row_of
from everturn.providers.json_values import mend_texts, parse_json
from everturn.records import Reply, ToolCall
from everturn.system.json_numbers import compact_json, place_of_odd_number
from everturn.text.shortening import shortened
from everturn.validation.schema_references import MOST_REFERENCES, references_in, same_value_schemas, target_of
from everturn.validation.sub_schemas import CHOICES, change_sub_schemas, declared_types

Schema = dict[str, Any]

_PLAIN_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_.-]")

_ALTERNATIVES: Final = ("anyOf", "oneOf")
_AT_THE_TOP: Final = ("anyOf", "oneOf", "allOf", "not", "if", "then", "else", "enum", "const", "dependentSchemas")
"""Keywords that the top of a schema may not have."""

_BESIDE_EACH_OTHER: Final = ("anyOf", "oneOf", "not", "if", "enum", "const", "dependentSchemas")
"""Of these, two schemas for the same value can't be one: each says what it says on its own."""
_CONDITION: Final = ("if", "then", "else")

_MAX_RULE_BYTES: Final = 2_000
_MOST_REMEMBERED: Final = 2_000
"""Tools' schemas, of all agents and MCP servers together."""
_MOST_BRANCHES: Final = 1_000
"""Schemas that are joined into one: a few that double with each level would never be done."""
_DEFINITION: Final = re.compile(r"#|#/(?:\$defs|definitions)/[^/]+")
"""References that stay right whatever is rewritten."""


class UnwritableSchema(Exception):
    """The schema has no form that providers take. The message says why."""


def fit_schemas(request: Request) -> Request:
    """The request with schemas that its provider takes; the same if it takes all. Warns of each tool that is left
    out."""
    renames = row_of(request.model.provider).protocol == "anthropic_messages"
    tools: list[ToolSpec] = []
    for tool in request.tools:
        try:
            tools.append(_fitted_tool(tool, renames=renames))
        except UnwritableSchema as error:
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
    schema, rules = _fit_once(_SameSchema(tool.parameters), renames=renames)
    if schema is tool.parameters:
        return tool
    described = "\n\n".join(filter(None, [tool.description, *rules]))
    return replace(tool, description=described, parameters=schema)


class _SameSchema:
    """A tool's schema as the key of a cache, by identity: each turn asks with the same object, which nobody changes."""

    __slots__ = ("schema",)

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.schema = schema

    def __hash__(self) -> int:
        return id(self.schema)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _SameSchema) and other.schema is self.schema


@lru_cache(maxsize=_MOST_REMEMBERED)
def _fit_once(given: _SameSchema, *, renames: bool) -> tuple[Mapping[str, Any], Sequence[str]]:
    """As `_rewrite`, with references that still lead where they led. Without the cache, a turn with 40 tools would
    spend more time here (2 to 7 ms) than on all the rest of writing its request (0.4 ms)."""
    schema, rules = _rewrite(given.schema, renames=renames)
    if schema is not given.schema and any(map(_moves, references_in(given.schema))):
        return _rewrite(with_definitions(given.schema), renames=renames)
    return schema, rules


def _rewrite(given: Mapping[str, Any], *, renames: bool) -> tuple[Mapping[str, Any], list[str]]:
    schema, rules = top_level_object(given)
    schema = with_items(schema)
    if renames:
        schema = _with_plain_names(schema)
    return schema, rules


# ---------------------------------------------------------------- references


def with_definitions(root: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema with a definition for each other place that it refers to: that place may move, or get another name."""
    names: dict[str, str] = {}
    whole = _refer_to_definitions(root, names)
    added: dict[str, Any] = {}
    while missing := [(reference, name) for reference, name in names.items() if name not in added]:
        for reference, name in missing:
            target = target_of(reference, root)
            added[name] = _refer_to_definitions(target, names) if isinstance(target, Mapping) else {}
    return {**whole, "$defs": {**(whole.get("$defs") or {}), **added}}


def _refer_to_definitions(schema: Mapping[str, Any], names: dict[str, str]) -> Mapping[str, Any]:
    """`names`: the definitions' names, by the references that they stand for."""
    changed = change_sub_schemas(schema, lambda inner: _refer_to_definitions(inner, names))
    reference = schema.get("$ref")
    if not _moves(reference):
        return changed
    marked = hashlib.sha256(reference.encode("utf-8", "surrogatepass")).hexdigest()[:6]
    name = names.setdefault(reference, f"{_NOT_IN_NAMES.sub('_', reference)[-40:].strip('_')}_{marked}")
    return {**changed, "$ref": f"#/$defs/{name}"}


def _moves(reference: object) -> TypeGuard[str]:
    return isinstance(reference, str) and reference.startswith("#/") and not _DEFINITION.fullmatch(reference)


# ---------------------------------------------------------------- the top


def top_level_object(given: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[str]]:
    """The schema as one object, without choices at its top, and the rules that it lost by that, in words. Raises
    Unwritable."""
    if given.get("type") == "object" and not given.keys() & {*_AT_THE_TOP, "$ref"}:
        return given, []
    joining = _SchemaJoin(given)
    schema = joining.join(given)
    rules = []
    leftover = {name: schema.pop(name) for name in _AT_THE_TOP if name in schema}
    for word in _ALTERNATIVES:
        if branches := leftover.pop(word, None):
            _add_choice(schema, [*joining.objects_in(branches)])
            rules.append(f"The arguments have to fit {_ONE_OF[word]}: {_rule_text(branches)}")
    if leftover:
        rules.append(f"The arguments have to fit this JSON schema, too: {_rule_text(leftover)}")
    if not _may_be_object(schema):
        raise UnwritableSchema(f"its arguments are no object, but {schema['type']!r}")
    schema["type"] = "object"
    schema.setdefault("properties", {})
    return schema, rules


def _may_be_object(schema: Mapping[str, Any]) -> bool:
    return "type" not in schema or "object" in declared_types(schema)


_ONE_OF: Final = {"anyOf": "at least one of these JSON schemas", "oneOf": "exactly one of these JSON schemas"}


def _rule_text(value: Any) -> str:
    return shortened(compact_json(value), max_bytes=_MAX_RULE_BYTES)


class _SchemaJoin:
    """Joins what several schemas say of one object."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._remaining = _MOST_BRANCHES

    def join(self, schema: Any, followed: frozenset[str] = frozenset()) -> Schema:
        """The schema that a reference leads to, with what is beside it, and with what `allOf` says in it, as far as
        that describes properties. `followed`: the references that led here. Raises Unwritable."""
        self._remaining -= 1
        if self._remaining < 0:
            raise UnwritableSchema(f"it joins more than {_MOST_BRANCHES:,} schemas")
        joined, followed = self._resolve(schema, followed)
        for branch in joined.pop("allOf", None) or ():
            if not (isinstance(branch, Mapping) and branch.get("$ref") in followed):  # it says itself again
                _add_branch(joined, self.join(branch, followed))
        return joined

    def objects_in(self, branches: Any, followed: frozenset[str] = frozenset()) -> Iterator[Schema]:
        """Those of a choice's branches that are objects, with the branches of choices within them."""
        for branch in branches if isinstance(branches, list) else ():
            reference = branch.get("$ref") if isinstance(branch, Mapping) else None
            if reference is not None and reference in followed:
                continue
            joined = self.join(branch)
            inner = [choice for word in _ALTERNATIVES for choice in joined.get(word) or ()]
            if inner and "properties" not in joined:
                yield from self.objects_in(inner, followed | ({reference} if reference else set()))
            elif _may_be_object(joined):
                yield joined

    def _resolve(self, schema: Any, followed: frozenset[str]) -> tuple[Schema, frozenset[str]]:
        resolved = dict(schema) if isinstance(schema, Mapping) else {}
        for _ in range(MOST_REFERENCES):
            reference = resolved.pop("$ref", None)
            if reference is None:
                return resolved, followed
            target = target_of(str(reference), self._root)
            if not isinstance(target, Mapping):
                raise UnwritableSchema(f"its $ref {str(reference)[:100]!r} leads nowhere")
            followed |= {str(reference)}
            resolved = {**target, **resolved}
        raise UnwritableSchema("its $ref leads to itself")


def _add_branch(schema: Schema, branch: Schema) -> None:
    """Adds what a branch of `allOf` says. A rule that the schema has one of already stays a branch."""
    _add_properties(schema, branch.pop("properties", None) or {})
    if required := branch.pop("required", None):
        schema["required"] = [*dict.fromkeys([*schema.get("required", ()), *required])]
    for word in _BESIDE_EACH_OTHER:
        if word in branch and word in schema:
            words = _CONDITION if word == "if" else (word,)
            rule = {name: branch.pop(name) for name in words if name in branch}
            schema.setdefault("allOf", []).append(rule)
    if rules := branch.pop("allOf", None):
        schema.setdefault("allOf", []).extend(rules)
    for name, value in branch.items():
        schema.setdefault(name, value)


def _add_choice(schema: Schema, objects: Sequence[Schema]) -> None:
    """Adds the properties of all branches; what all of them require is required."""
    if not objects:
        raise UnwritableSchema("none of its choices is an object")
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
    filled = change_sub_schemas(schema, with_items)
    is_array = "array" in declared_types(filled)
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


# ---------------------------------------------------------------- names


def plain_property(name: str) -> str:
    """A property's name in Anthropic's alphabet: unchanged if possible, else one that no other name turns into."""
    if _PLAIN_NAME.fullmatch(name):
        return name
    marked = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:6]
    return f"{_NOT_IN_NAMES.sub('_', name)[:50].strip('_') or 'name'}_{marked}"


def _with_plain_names(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    renamed = dict(change_sub_schemas(schema, _with_plain_names))
    properties = renamed.get("properties")
    if isinstance(properties, Mapping) and any(plain_property(name) != name for name in properties):
        renamed["properties"] = {
            plain_property(name): _describe_rename(name, inner) for name, inner in properties.items()
        }
    if isinstance(required := renamed.get("required"), list):
        renamed["required"] = _plain_all(required)
    if isinstance(needed := renamed.get("dependentRequired"), Mapping):
        renamed["dependentRequired"] = {plain_property(name): _plain_all(names) for name, names in needed.items()}
    if isinstance(rules := renamed.get("dependentSchemas"), Mapping):
        renamed["dependentSchemas"] = {plain_property(name): rule for name, rule in rules.items()}
    return schema if renamed == schema else renamed


def _plain_all(names: list[str]) -> list[str]:
    return [plain_property(name) for name in names]


def _describe_rename(name: str, schema: Any) -> Any:
    """The schema of a property that has another name now: its description says which."""
    if plain_property(name) == name or not isinstance(schema, Mapping):
        return schema
    description = f"(Named {name[:200]!r}.)"
    if schema.get("description"):
        description = f"{schema['description']} {description}"
    return {**schema, "description": description}


def _undo_fitted_call(call: ToolCall, schema: Mapping[str, Any]) -> ToolCall:
    arguments = _undo_fitted_value(call.arguments, schema, schema)
    if arguments == call.arguments:
        return call
    return call.model_copy(update={"arguments": arguments})


def _undo_fitted_value(value: Any, schema: Any, root: Mapping[str, Any]) -> Any:
    schemas = [*same_value_schemas(schema, root)]
    if isinstance(value, str):
        value = _unquoted(value, schemas)
    if isinstance(value, dict):
        known = {
            name: inner
            for resolved_schema in schemas
            for name, inner in (resolved_schema.get("properties") or {}).items()
        }
        by_wire = {plain_property(name): name for name in known if name not in value}
        further_schema = next(
            (inner for resolved_schema in schemas if (inner := resolved_schema.get("additionalProperties"))), None
        )
        original_names = {name: by_wire.get(name, name) for name in value}
        return {
            original_names[name]: _undo_fitted_value(item, known.get(original_names[name], further_schema), root)
            for name, item in value.items()
        }
    if isinstance(value, list):
        items = [
            resolved_schema.get("items")
            for resolved_schema in schemas
            if isinstance(resolved_schema.get("items"), Mapping)
        ]
        if not items:
            return value
        return [_undo_fitted_value(item, {"anyOf": items}, root) for item in value]
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
    if kinds := declared_types(schema):
        yield from kinds
    elif "properties" in schema:
        yield "object"
    elif "items" in schema:
        yield "array"
    elif not schema.keys() & {"$ref", *CHOICES}:
        yield "string"
