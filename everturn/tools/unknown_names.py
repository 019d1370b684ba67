"""Names in a call's arguments that the schema does not list. pydantic passes over those inside of objects, or reads
them as another spelling of a field; a person's rule about that field would not see them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from everturn.text.shortening import clipped
from everturn.tools.json_schema import MAX_VALUE_CHARS
from everturn.validation.open_objects import is_listed, takes_more
from everturn.validation.schema_references import resolved
from everturn.validation.sub_schemas import children_with_schemas, declared_types

_MOST_NAMES = 5


def problem_of(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> list[str]:
    """One line for all unknown names of arguments, so that they can't crowd out the missing ones."""
    known = schema["properties"]
    unknown = _unlisted(arguments, schema)
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
    search = _Search(schema)
    return [
        problem
        for name, value in arguments.items()
        for problem in search.problems_at(clipped(name, MAX_VALUE_CHARS), value, properties.get(name))
    ]


def _unlisted(names: Iterable[str], schema: Mapping[str, Any]) -> list[str]:
    return [clipped(name, MAX_VALUE_CHARS) for name in names if not is_listed(name, schema)]


class _Search:
    """Through one call's arguments. Each value is looked at once by each schema: a type that holds unions of itself
    would take time that doubles with each level, or never end."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._problems: dict[tuple[int, int], list[str]] = {}

    def problems_at(self, place: str, value: Any, schema: Any) -> list[str]:
        if not isinstance(value, dict | list):
            return []
        inner = resolved(schema, self._root)
        key = (id(value), id(inner))  # both live as long as this search
        if key not in self._problems:
            self._problems[key] = []
            self._problems[key] = [*self._find_problems(place, value, inner)]
        return self._problems[key]

    def _find_problems(self, place: str, value: dict[str, Any] | list[Any], schema: Mapping[str, Any]) -> Iterator[str]:
        if branches := schema.get("anyOf") or schema.get("oneOf"):
            yield from self._problems_in_union(place, value, [resolved(branch, self._root) for branch in branches])
        if unknown := _unknown_in(value, schema):
            fields = ", ".join(schema.get("properties") or {})
            yield f"{place}.{', '.join(unknown[:_MOST_NAMES])}: Unknown; its fields are {fields}"
        for name, child, its_schema in children_with_schemas(value, schema):
            step = f"[{name}]" if isinstance(name, int) else f".{clipped(name, MAX_VALUE_CHARS)}"
            yield from self.problems_at(f"{place}{step}", child, its_schema)

    def _problems_in_union(
        self, place: str, value: dict[str, Any] | list[Any], branches: Iterable[Mapping[str, Any]]
    ) -> list[str]:
        """By the schema that fits best: by the value's kind and its own names, and then by those further in."""
        kind = "array" if isinstance(value, list) else "object"
        possible = [branch for branch in branches if kind in (declared_types(branch) or [kind])]
        misfits = [(len(_unknown_in(value, branch)), self.problems_at(place, value, branch)) for branch in possible]
        _, problems = min(misfits, key=lambda misfit: (misfit[0], len(misfit[1])), default=(0, []))
        return problems


def _unknown_in(value: dict[str, Any] | list[Any], schema: Mapping[str, Any]) -> list[str]:
    if not isinstance(value, dict) or takes_more(schema) is not False:
        return []
    return _unlisted(value, schema)
