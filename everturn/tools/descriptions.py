"""What annotations say in words: `Annotated[int, "How many"]` describes an argument as `Field(description=)` does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue


class DescribedJsonSchema(GenerateJsonSchema):
    """Schemas of models, dataclasses and typed dicts, with what the annotations of their fields say."""

    def model_schema(self, schema: Any) -> JsonSchemaValue:
        return _described(super().model_schema(schema), schema.get("cls"))

    def dataclass_schema(self, schema: Any) -> JsonSchemaValue:
        return _described(super().dataclass_schema(schema), schema.get("cls"))

    def typed_dict_schema(self, schema: Any) -> JsonSchemaValue:
        return _described(super().typed_dict_schema(schema), schema.get("cls"))


def _described(made: JsonSchemaValue, cls: Any) -> JsonSchemaValue:
    """The schema, with descriptions if it has none: a `description` of a Field's comes first."""
    properties = made.get("properties", {})
    for name, annotation, extras in _fields(cls):
        of_field = properties.get(name)
        if of_field is None:
            continue
        if text := _text(extras) or _said_within(annotation):
            of_field.setdefault("description", text)
        items = of_field.get("items")
        if isinstance(items, dict) and len(get_args(annotation)) == 1 and (text := _said_by(get_args(annotation)[0])):
            items.setdefault("description", text)
    return made


def _fields(cls: Any) -> Iterator[tuple[str, Any, Iterable[Any]]]:
    """Of each field: its name in JSON, its annotation, and what is beside that in Annotated."""
    if isinstance(cls, type) and issubclass(cls, BaseModel):
        for name, field in cls.model_fields.items():
            alias = field.validation_alias if isinstance(field.validation_alias, str) else field.alias
            yield alias or name, field.annotation, field.metadata
        return
    try:
        hints = get_type_hints(cls, include_extras=True)
    except (NameError, TypeError):  # names that only pydantic can find, or no class at all
        return
    for name, hint in hints.items():
        while get_origin(hint) is not Annotated and len(get_args(hint)) == 1 and "Required" in str(get_origin(hint)):
            hint = get_args(hint)[0]  # noqa: PLW2901 - what is inside of Required[] and NotRequired[]
        inner, *extras = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        yield name, inner, extras


def _said_by(annotation: Any) -> str:
    return _text(get_args(annotation)[1:]) if get_origin(annotation) is Annotated else ""


def _said_within(annotation: Any) -> str:
    """Of `Annotated[int, "How many"] | None`."""
    if get_origin(annotation) not in (Union, UnionType):
        return ""
    return next(filter(None, map(_said_by, get_args(annotation))), "")


def _text(extras: Iterable[Any]) -> str:
    """The first text, as such or as PEP 727's Doc()."""
    said = (one if isinstance(one, str) else getattr(one, "documentation", "") for one in extras)
    return next((one.strip() for one in said if isinstance(one, str) and one.strip()), "")
