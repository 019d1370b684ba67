"""Vendors' types, walked member by member: each type of output beside the type of input of the same name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NotRequired, Required, Union, get_args, get_origin

from pydantic import BaseModel
from typing_extensions import get_type_hints, is_typeddict

MARK = "of outputs only"


def members(kind: Any) -> Iterator[Any]:
    """The members of a union, whatever it is wrapped in, and the elements of a list."""
    while get_origin(kind) in (Annotated, Required, NotRequired):
        kind = get_args(kind)[0]
    kind = getattr(kind, "__value__", kind)
    origin = get_origin(kind)
    if origin in (Union, UnionType) or (origin is not None and getattr(origin, "__name__", "") in _LISTS):
        for member in get_args(kind):
            yield from members(member)
    else:
        yield kind


_LISTS = ("list", "Iterable", "Sequence", "SequenceNotStr", "Annotated")


def names_of(kind: Any) -> set[str]:
    """The values of a type's `type`."""
    fields = kind.model_fields if _is_model(kind) else get_type_hints(kind, include_extras=True)
    field = fields.get("type")
    found = members(field.annotation if _is_model(kind) and field else field)
    return {name for member in found if get_origin(member) is Literal for name in get_args(member)}


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


@dataclass(frozen=True)
class Pair:
    """A type of output, and the types of input of the same name."""

    output: type[BaseModel]
    inputs: tuple[Any, ...]

    @property
    def name(self) -> str:
        return min(names_of(self.output))


def pairs(outputs: Any, inputs: Any) -> list[Pair]:
    known = [kind for kind in members(inputs) if is_typeddict(kind)]
    found = []
    for output in members(outputs):
        same = tuple(kind for kind in known if names_of(kind) & names_of(output))
        assert same, f"{output} has no type of input: can it be sent back?"
        found.append(Pair(output, same))
    return found


def example(kind: type[BaseModel], inputs: Sequence[Any], depth: int = 0) -> dict[str, Any]:
    """A value of a type of output with all of its fields. Those that no input has are marked."""
    value: dict[str, Any] = {}
    for name, field in kind.model_fields.items():
        wire = field.alias or name
        hints = [get_type_hints(known, include_extras=True) for known in inputs]
        takers = [hint[wire] for hint in hints if wire in hint]
        if inputs and not takers:
            value[wire] = MARK
            continue
        annotation = field.annotation
        value[wire] = _value(annotation, takers, depth)
    return value


def _value(annotation: Any, takers: Sequence[Any], depth: int) -> Any:
    inner = [member for member in members(annotation) if member is not NoneType]
    models = [member for member in inner if _is_model(member)]
    literals = [name for member in inner if get_origin(member) is Literal for name in get_args(member)]
    if literals:
        return literals[0]
    if models and depth < 6:
        known = [kind for taker in takers for kind in members(taker) if is_typeddict(kind)]
        made = []
        for model in models:
            same = [kind for kind in known if not names_of(model) or names_of(kind) & names_of(model)]
            if same or not known:
                made.append(example(model, same, depth + 1))
        is_list = any(getattr(get_origin(part), "__name__", "") in _LISTS for part in _parts(annotation))
        return made if is_list else made[0]
    if str in inner:
        return "x"
    return {} if any(get_origin(member) is dict or member in (object, Any) for member in inner) else 0


def _parts(annotation: Any) -> Iterator[Any]:
    yield annotation
    for part in get_args(annotation) if get_origin(annotation) in (Union, UnionType, Annotated) else ():
        yield from _parts(part)


def marked(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(marked, value.values()))
    return any(map(marked, value)) if isinstance(value, list) else value == MARK
