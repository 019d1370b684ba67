"""Mends JSON schemas that are not valid, of programs that never checked them. Providers check schemas by JSON Schema
2020-12, and refuse every request with an invalid one: "None is not of type 'array'", "'any' is not valid under any of
the given schemas".

Go's `"required": null` of an empty slice, PHP's `"properties": []` of an empty array, `required: true` and
`exclusiveMinimum: true` of older drafts, `"type": "any"`, and types as Python or Gemini spell them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from everturn.validation.sub_schemas import BY_NAME, LISTS, SINGLE

Schema = Mapping[str, Any]

_MAY_BE_NULL: Final = frozenset({"const", "default", "example"})

_TYPES: Final = {
    **{name: name for name in ("string", "number", "integer", "boolean", "array", "object", "null")},
    "str": "string",
    "text": "string",
    "int": "integer",
    "float": "number",
    "double": "number",
    "bool": "boolean",
    "list": "array",
    "tuple": "array",
    "dict": "object",
    "none": "null",
}
"""Names that programs give to types, in lower case. Any other, such as 'any', says nothing."""


def valid_schema(schema: Schema) -> Schema:
    """The schema as JSON Schema 2020-12 has it, with its meaning as far as it can be told; the same object if nothing
    is wrong with it."""
    valid: dict[str, Any] = {}
    for name, given in schema.items():
        if given is None and name not in _MAY_BE_NULL:
            continue
        mended = _MENDED[name](given) if name in _MENDED else given
        if mended is not None or given is None:
            valid[name] = mended
    _move_required(schema, valid)
    for bound in ("minimum", "maximum"):
        _exclude_bound(valid, bound, f"exclusive{bound.capitalize()}")
    return _given_if_same(schema, valid)  # type: ignore[no-any-return]


def valid_type(given: Any) -> Any:
    """The type, or the list of types; None if it names none, or one that takes anything."""
    if isinstance(given, str):
        return _TYPES.get(given.strip().lower())
    if not isinstance(given, list):
        return None
    kinds = [valid_type(kind) for kind in given if isinstance(kind, str)]
    if not kinds or len(kinds) < len(given) or None in kinds:
        return None
    return _given_if_same(given, [*dict.fromkeys(kinds)])


def _given_if_same(given: Any, valid: Any) -> Any:
    if valid == given:
        return given
    return valid


def _as_schema(given: Any) -> Any:
    """What stands where a schema has to: a bare name of a type is one; what is no schema at all takes anything."""
    if isinstance(given, Mapping):
        return valid_schema(given)
    if isinstance(given, bool):
        return given
    known = valid_type(given)
    return {"type": known} if known else {}


def _schemas_by_name(given: Any) -> Any:
    if given == []:
        return {}
    if not isinstance(given, Mapping):
        return None
    return _given_if_same(given, {name: _as_schema(schema) for name, schema in given.items()})


def _schemas_in_list(given: Any) -> Any:
    if not isinstance(given, list) or not given:
        return None
    return _given_if_same(given, [_as_schema(schema) for schema in given])


def _one_schema(given: Any) -> Any:
    if isinstance(given, list):
        return _schemas_in_list(given)  # of `items`, as it was before 2020
    return _as_schema(given)


def _valid_required(given: Any) -> Any:
    """Names, each once. `true` belongs to the object that has this property: see `_move_required`."""
    if isinstance(given, str):
        return [given]
    if not isinstance(given, list):
        return None
    if not all(isinstance(name, str) for name in given):
        return given  # it is refused, with its place
    return _given_if_same(given, [*dict.fromkeys(given)])


def _valid_dependent_required(given: Any) -> Any:
    """Lists of names, by name."""
    if not isinstance(given, Mapping):
        return None
    valid = {name: _valid_required(names) for name, names in given.items()}
    return _given_if_same(given, {name: names for name, names in valid.items() if names is not None})


def _valid_enum(given: Any) -> Any:
    """Each choice once. None if there are none: nothing would fit."""
    if not isinstance(given, list) or not given:
        return None
    return _given_if_same(given, [*{(type(choice), repr(choice)): choice for choice in given}.values()])


def _valid_examples(given: Any) -> Any:
    if isinstance(given, list):
        return given
    return [given]


def _move_required(schema: Schema, valid: dict[str, Any]) -> None:
    """`required: true` of properties, as draft 3 has it, becomes the object's list."""
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return
    marked = [
        name for name, inner in properties.items() if isinstance(inner, Mapping) and inner.get("required") is True
    ]
    if marked:
        valid["required"] = [*dict.fromkeys([*valid.get("required", ()), *marked])]


def _exclude_bound(valid: dict[str, Any], bound: str, exclusive: str) -> None:
    """`exclusiveMinimum: true` beside `minimum`, as draft 4 has it."""
    if not isinstance(valid.get(exclusive), bool):
        return
    if valid.pop(exclusive) and bound in valid:
        valid[exclusive] = valid.pop(bound)


_MENDED: Final[Mapping[str, Callable[[Any], Any]]] = {
    **dict.fromkeys(BY_NAME, _schemas_by_name),
    **dict.fromkeys(LISTS, _schemas_in_list),
    **dict.fromkeys(SINGLE, _one_schema),
    "type": valid_type,
    "required": _valid_required,
    "dependentRequired": _valid_dependent_required,
    "enum": _valid_enum,
    "examples": _valid_examples,
}
