"""Numbers in a tool's arguments that JSON does not have, as converters make them of what a model may send: NaN of the
text "nan", an infinity of "1e999" or of an integer beyond a double.

Every comparison with NaN is false, so a guard such as `amount > 100` would let it pass. A default of the user's own,
such as `math.inf`, is no such number: the model did not send it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from decimal import Decimal
from math import isfinite
from typing import Any

from pydantic import BaseModel

from everturn.system.json_numbers import reads_as_odd_number
from everturn.validation.schema_references import same_value_schemas
from everturn.validation.sub_schemas import children_with_schemas, declared_types

PROBLEM = "a number has to be finite"


def odd_numbers_sent(arguments: Any) -> bool:
    """Whether the JSON holds a text or an integer that a converter may turn into such a number."""
    return any(map(reads_as_odd_number, _iterate_leaves(arguments)))


def place_in_values(value: Any, place: str = "") -> str | None:
    """Where validated arguments hold such a number; None if they hold none. Fields that were not sent are left out."""
    if isinstance(value, float | Decimal | complex):
        return None if _is_finite(value) else place
    places = (place_in_values(inside, f"{place}{step}") for step, inside in _iterate_children(value))
    return next((odd for odd in places if odd is not None), None)


def place_by_schema(value: Any, schema: Mapping[str, Any]) -> str | None:
    """Where the JSON has a text that reads as such a number although the schema wants a number there; None if nowhere.
    For arguments that somebody else converts."""
    return _place_in(value, schema, schema, place="", seen=set())


def _place_in(
    value: Any, schema: object, root: Mapping[str, Any], *, place: str, seen: set[tuple[int, int]]
) -> str | None:
    """`seen`: by value and schema, what was looked at: a schema may hold itself."""
    key = (id(value), id(schema))
    if key in seen:
        return None
    seen.add(key)
    schemas = [*same_value_schemas(schema, root)]
    if reads_as_odd_number(value):
        if _wants_number(value, schemas):
            return place
        return None
    for inner in schemas:
        for name, child, its_schema in children_with_schemas(value, inner):
            step = f"[{name}]" if isinstance(name, int) else f".{name}"
            if (odd := _place_in(child, its_schema, root, place=f"{place}{step}", seen=seen)) is not None:
                return odd
    return None


def _wants_number(value: object, schemas: Sequence[Mapping[str, Any]]) -> bool:
    """`schemas`: those for this value. A schema that says nothing allows a text."""
    kinds = {kind for schema in schemas for kind in declared_types(schema)}
    if isinstance(value, int):
        return "number" in kinds and "integer" not in kinds
    return bool(kinds & {"number", "integer"}) and "string" not in kinds


def _is_finite(value: float | Decimal | complex) -> bool:
    if isinstance(value, complex):
        return isfinite(value.real) and isfinite(value.imag)
    if isinstance(value, Decimal):
        return value.is_finite()
    return isfinite(value)


def _iterate_leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        for name, inside in value.items():
            yield name
            yield from _iterate_leaves(inside)
    elif isinstance(value, list | tuple):
        for inside in value:
            yield from _iterate_leaves(inside)
    else:
        yield value


def _iterate_children(value: Any) -> Iterator[tuple[str, Any]]:
    """What a value holds, each with the step that leads there."""
    if isinstance(value, BaseModel):
        sent = value.model_fields_set
        yield from ((f".{name}", child) for name, child in vars(value).items() if name in sent)
        yield from ((f".{name}", child) for name, child in (value.model_extra or {}).items())
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            child = getattr(value, field.name, None)
            if child is not field.default:
                yield f".{field.name}", child
    elif isinstance(value, Mapping):
        for name, child in value.items():
            yield f".{name}", name
            yield f".{name}", child
    elif isinstance(value, list | tuple | Set):
        yield from ((f"[{index}]", child) for index, child in enumerate(value))
