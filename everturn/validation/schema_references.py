"""References within a JSON schema, and what they lead to. Schemas of strangers refer to any place (.NET's and zod's to
`#/properties/parent`), to themselves, and nowhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote

from everturn.validation.sub_schemas import CHOICES

MOST_REFERENCES: Final = 20
"""References to references that are followed: more lead in a circle."""

Schema = Mapping[str, Any]
_ANYTHING: Final[Schema] = {}


def target_of(reference: str, root: Schema) -> Any:
    """What stands at the place that a reference names by a JSON pointer (RFC 6901), `#` being the whole schema; None if
    nothing does."""
    if not reference.startswith("#"):
        return None
    target = _follow_pointer(reference[1:], root)
    if target is None and "%" in reference:
        target = _follow_pointer(unquote(reference[1:]), root)
    return target


def resolved(schema: object, root: Schema) -> Schema:
    """The schema, or the one that it refers to; an empty one, which takes anything, if that is nowhere."""
    for _ in range(MOST_REFERENCES):
        if not isinstance(schema, Mapping):
            return _ANYTHING
        if not isinstance(reference := schema.get("$ref"), str):
            return schema
        schema = target_of(reference, root)
    return _ANYTHING


def same_value_schemas(schema: object, root: Schema) -> Iterator[Schema]:
    """The schema, and those that it refers to or chooses from, for the same value: each of them once."""
    ahead = [schema]
    seen: set[int] = set()
    while ahead:
        inner = ahead.pop()
        if not isinstance(inner, Mapping) or id(inner) in seen:
            continue
        seen.add(id(inner))
        yield inner
        branches = [branch for word in CHOICES if isinstance(listed := inner.get(word), list) for branch in listed]
        if isinstance(reference := inner.get("$ref"), str):
            branches.insert(0, target_of(reference, root))
        ahead += reversed(branches)


def references_in(value: object) -> Iterator[str]:
    """All references within a schema, wherever they stand."""
    if isinstance(value, Mapping):
        if isinstance(reference := value.get("$ref"), str):
            yield reference
        value = [*value.values()]
    if isinstance(value, list):
        for inner in value:
            yield from references_in(inner)


def _follow_pointer(pointer: str, root: Any) -> Any:
    target = root
    for step in pointer.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(target, Mapping):
            target = target.get(name)
        elif isinstance(target, list) and name.isdecimal() and int(name[:9]) < len(target):
            target = target[int(name[:9])]
        else:
            return None
    return target
