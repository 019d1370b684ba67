"""Where a JSON schema holds others: by keyword, and for what is inside of a value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

Schema = Mapping[str, Any]

CHOICES: Final = ("anyOf", "oneOf", "allOf")
"""Lists of schemas for the same value."""

BY_NAME: Final = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
LISTS: Final = (*CHOICES, "prefixItems")
SINGLE: Final = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")


def change_sub_schemas(schema: Schema, change: Callable[[Schema], Schema]) -> Schema:
    """The schema with `change` made to each schema that it holds; the same object if nothing changed."""

    def change_inner(inner: Any) -> Any:
        return change(inner) if isinstance(inner, Mapping) else inner

    changed = dict(schema)
    for word in BY_NAME:
        if isinstance(by_name := schema.get(word), Mapping):
            changed[word] = {name: change_inner(inner) for name, inner in by_name.items()}
    for word in LISTS:
        if isinstance(listed := schema.get(word), list):
            changed[word] = [change_inner(inner) for inner in listed]
    for word in SINGLE:
        if word in schema:
            changed[word] = change_inner(schema[word])
    return schema if changed == schema else changed


def children_with_schemas(value: object, schema: Schema) -> Iterator[tuple[str | int, Any, Any]]:
    """What an object or a list holds: its name or index, the value, and the schema that it goes by; None if there is
    none."""
    if isinstance(value, Mapping):
        properties = schema.get("properties") or {}
        for name, child in value.items():
            yield name, child, properties.get(name, schema.get("additionalProperties"))
    elif isinstance(value, list):
        prefix = schema.get("prefixItems") or []
        for index, child in enumerate(value):
            yield index, child, prefix[index] if index < len(prefix) else schema.get("items")


def declared_types(schema: Schema) -> list[str]:
    """The types that the schema names; empty if it names none."""
    given = schema.get("type")
    if isinstance(given, str):
        return [given]
    return given if isinstance(given, list) else []
