"""What a tool will use beside what a call says: the defaults, in its schema, of arguments that the call leaves out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from everturn.text.json_text import json_text
from everturn.text.utf8 import mend
from everturn.validation.schema_references import target_of
from everturn.validation.sub_schemas import declared_types

MOST_SHOWN: Final = 50
"""Of one call's."""

MOST_LEVELS: Final = 20
"""Of objects within objects: a schema may refer to itself."""

MOST_CHOICES: Final = 200
"""Schemas, and references to some, that are looked at for one value."""

Schema = Mapping[str, Any]


def find_defaults(schema: Schema, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Each default that will be used, without nulls, by its place: `currency`, `order.currency`, `items[0].count`. Of
    schemas that a value may fit in several ways, and of defaults that a function makes, nothing is known."""
    defaults: dict[str, Any] = {}
    for place, value in _DefaultsReader(schema).read_value("", schema, dict(arguments), MOST_LEVELS):
        if len(defaults) == MOST_SHOWN:
            break
        defaults[place] = value
    return defaults


def defaults_in_words(defaults: Mapping[str, Any]) -> str:
    """To be put behind what a person is asked; empty if there are none."""
    if not defaults:
        return ""
    written = ", ".join(f"{place}={json_text(value)}" for place, value in defaults.items())
    return mend(f" (by default: {written})")


class _DefaultsReader:
    def __init__(self, root: Schema) -> None:
        self._root = root

    def read_value(self, place: str, schema: object, value: object, levels: int) -> Iterator[tuple[str, Any]]:
        resolved = self._resolve(schema, value)
        if resolved is None or levels == 0:
            return
        if isinstance(value, dict):
            yield from self._read_object(place, resolved, value, levels)
        elif isinstance(value, list):
            for number, item in enumerate(value):
                yield from self.read_value(f"{place}[{number}]", resolved.get("items"), item, levels - 1)

    def _read_object(self, place: str, schema: Schema, value: dict[str, Any], levels: int) -> Iterator[tuple[str, Any]]:
        properties = _as_mapping(schema.get("properties"))
        for name, inner in properties.items():
            at = f"{place}.{name}" if place else name
            given = value.get(name)
            if name not in value:
                given = _as_mapping(inner).get("default")
                if given is None:
                    continue
                yield at, given
            yield from self.read_value(at, inner, given, levels - 1)
        for name in (name for name in value if name not in properties):
            at = f"{place}.{name}" if place else name
            yield from self.read_value(at, schema.get("additionalProperties"), value[name], levels - 1)

    def _resolve(self, schema: object, value: object) -> Schema | None:
        """The schema that this value goes by; None if it is none, or if that can't be said."""
        choices = list(self._find_choices(schema))
        if len(choices) > 1:
            choices = [choice for choice in choices if _may_fit(choice, value)]
        return choices[0] if len(choices) == 1 else None

    def _find_choices(self, schema: object) -> Iterator[Schema]:
        """The schemas that a value may go by, with what is referred to in place of the reference."""
        todo = [schema]
        for _ in range(MOST_CHOICES):
            if not todo:
                return
            choice = _as_mapping(todo.pop(0))
            if isinstance(reference := choice.get("$ref"), str):
                todo.append(target_of(reference, self._root))
            elif isinstance(parts := choice.get("allOf"), list) and len(parts) == 1:
                todo += parts
            elif isinstance(several := choice.get("anyOf", choice.get("oneOf")), list):
                todo += several
            elif choice:
                yield choice


def _may_fit(schema: Schema, value: object) -> bool:
    """Whether an object or a list may go by it, by what is required, and by values that it names."""
    if isinstance(value, list):
        return "array" in declared_types(schema)
    if not isinstance(value, dict) or "object" not in declared_types(schema):
        return False
    required = schema.get("required")
    if isinstance(required, list) and any(name not in value for name in required):
        return False
    properties = _as_mapping(schema.get("properties"))
    named = {name: inner["const"] for name, inner in properties.items() if "const" in _as_mapping(inner)}
    return all(value.get(name, constant) == constant for name, constant in named.items())


def _as_mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
