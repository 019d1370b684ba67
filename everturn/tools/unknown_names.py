"""Names in a call's arguments that the schema does not list. pydantic passes over those inside of objects, or reads
them as another spelling of a field; a person's rule about that field would not see them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from everturn.sizes import clipped
from everturn.tools.json_schema import MAX_VALUE_CHARS
from everturn.validation.open_objects import is_listed, takes_more

_MOST_NAMES = 5


def problem_of(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> list[str]:
    """One line for all unknown names of arguments, so that they can't crowd out the missing ones."""
    known = schema["properties"]
    unknown = [clipped(name, MAX_VALUE_CHARS) for name in arguments if not is_listed(name, schema)]
    if not unknown:
        return []
    takes = "there are no arguments"
    if known:
        takes = f"the arguments are {', '.join(known)}"
    more = f" and {len(unknown) - _MOST_NAMES} more" if len(unknown) > _MOST_NAMES else ""
    return [f"{', '.join(unknown[:_MOST_NAMES])}{more}: Unknown argument; {takes}"]


def problems_within(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> list[str]:
    """The same for the objects in the arguments: a line for each object."""
    properties = schema.get("properties", {})
    definitions = schema.get("$defs") or {}
    return [
        problem
        for name, value in arguments.items()
        for problem in _problems_at(clipped(name, MAX_VALUE_CHARS), value, properties.get(name), definitions)
    ]


def _problems_at(place: str, value: Any, schema: Any, definitions: Mapping[str, Any]) -> Iterator[str]:
    schema = _resolve(schema, definitions)
    if branches := schema.get("anyOf") or schema.get("oneOf"):
        meant = _branch_meant(value, [_resolve(branch, definitions) for branch in branches], definitions)
        yield from _problems_at(place, value, meant, definitions)
    if isinstance(value, list):
        prefix = schema.get("prefixItems") or []
        for index, inside in enumerate(value):
            of_item = prefix[index] if index < len(prefix) else schema.get("items")
            yield from _problems_at(f"{place}[{index}]", inside, of_item, definitions)
    elif isinstance(value, dict):
        yield from _problems_in_object(place, value, schema, definitions)


def _resolve(schema: Any, definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema that a reference stands for; an empty one if there is none."""
    while isinstance(schema, Mapping) and isinstance(name := schema.get("$ref"), str):
        schema = definitions.get(name.rpartition("/")[2])
    if not isinstance(schema, Mapping):
        return {}
    return schema


def _branch_meant(
    value: Any, branches: list[Mapping[str, Any]], definitions: Mapping[str, Any]
) -> Mapping[str, Any] | None:
    """The schema of a union that fits best, by the value's kind and its own names, and then by those further in."""
    kind = "array" if isinstance(value, list) else "object"
    possible = [branch for branch in branches if branch.get("type") in (None, kind)]

    def misfit(branch: Mapping[str, Any]) -> tuple[int, int]:
        return len(_unknown_in(value, branch)), len([*_problems_at("", value, branch, definitions)])

    return min(possible, key=misfit, default=None)


def _unknown_in(value: Any, schema: Mapping[str, Any]) -> list[str]:
    if not isinstance(value, dict) or takes_more(schema) is not False:
        return []
    return [clipped(name, MAX_VALUE_CHARS) for name in value if not is_listed(name, schema)]


def _problems_in_object(
    place: str, value: Mapping[str, Any], schema: Mapping[str, Any], definitions: Mapping[str, Any]
) -> Iterator[str]:
    properties = schema.get("properties") or {}
    if unknown := _unknown_in(value, schema):
        yield f"{place}.{', '.join(unknown[:_MOST_NAMES])}: Unknown; its fields are {', '.join(properties)}"
    for name, inside in value.items():
        of_field = properties.get(name, schema.get("additionalProperties"))
        yield from _problems_at(f"{place}.{clipped(name, MAX_VALUE_CHARS)}", inside, of_field, definitions)
