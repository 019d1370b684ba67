"""The JSON schema of what a model has to write, and error messages for the model if it does not fit.

Annotations describe what is asked for: `Annotated[int, "How many"]` as `Field(description=)` does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isfinite
from types import UnionType
from typing import Annotated, Any, NotRequired, Required, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ValidationError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue
from pydantic_core import ErrorDetails

from everturn.sizes import shortened_line
from everturn.system.json_numbers import place_of_odd_number

MAX_PROBLEMS = 10
MAX_LINE_CHARS = 500
MAX_VALUE_CHARS = 80

_VALUES = frozenset({"default", "const", "example"})
"""Keywords whose value is one of the described values, and no schema."""


class ModelFacingSchema(GenerateJsonSchema):
    """The schema of what a model is to write: arguments of a tool, or a last reply. An object stays at the top, as
    providers want it. Generated titles are left out, objects allow no other properties than those listed, and texts in
    annotations describe the fields."""

    # A default that JSON can't hold is left out, without a warning.
    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 - declared so by pydantic

    def generate(self, schema: Any, mode: JsonSchemaMode = "validation") -> JsonSchemaValue:
        made = super().generate(schema, mode)
        definitions: dict[str, Any] = made.pop("$defs", {})
        if "$ref" in made:  # a model that contains itself
            made = dict(definitions[made["$ref"].rpartition("/")[2]])
        for titled in (made, *definitions.values()):
            titled.pop("title", None)
        whole: JsonSchemaValue = without_odd_numbers(made | {"$defs": definitions} if definitions else made)
        return whole

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - pydantic's signature
        return False

    def model_schema(self, schema: Any) -> JsonSchemaValue:
        return _closed(_described(super().model_schema(schema), schema.get("cls")))

    def dataclass_schema(self, schema: Any) -> JsonSchemaValue:
        return _closed(_described(super().dataclass_schema(schema), schema.get("cls")))

    def typed_dict_schema(self, schema: Any) -> JsonSchemaValue:
        return _closed(_described(super().typed_dict_schema(schema), schema.get("cls")))


def problems_in(error: ValidationError, others: Sequence[str] = ()) -> str:
    """What does not fit, for the model: one problem a line, ten at most; then how many more there are."""
    details = error.errors(include_url=False, include_context=False)
    shown = [_problem(detail) for detail in details[:MAX_PROBLEMS]]
    return bounded_lines([*shown, *others], more=len(details) - len(shown))


def bounded_lines(problems: Sequence[str], *, more: int = 0) -> str:
    """Joins the lines, ten at most. `more`: how many further problems there are without a line."""
    lines = [shortened_line(line, MAX_LINE_CHARS) for line in problems]
    shown, more = lines[:MAX_PROBLEMS], more + max(0, len(lines) - MAX_PROBLEMS)
    return "\n".join([*shown, f"… and {more} more"] if more else shown)


def _shortened_value(text: str) -> str:
    return shortened_line(text, MAX_VALUE_CHARS)


def _problem(detail: ErrorDetails) -> str:
    """One line: where, what is wrong, and what was sent."""
    place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in detail["loc"]).lstrip(".")
    # "unable to parse string as an integer" says again what the sent value shows.
    message = re.sub(r", unable to parse string as an? [\w ]+$", "", detail["msg"])
    message = re.sub(r"^(Value|Assertion) error, ", "", message)
    if detail["type"] != "missing" and detail["loc"]:
        message += f", got {_shortened_value(json.dumps(detail['input'], ensure_ascii=False, default=str))}"
    return f"{_shortened_value(place)}: {message}" if place else message


def _closed(made: JsonSchemaValue) -> JsonSchemaValue:
    if made.get("type") == "object":
        made.setdefault("additionalProperties", False)
    return made


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
        while get_origin(hint) in (Required, NotRequired):
            hint = get_args(hint)[0]  # noqa: PLW2901 - what is inside
        inner, *extras = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        yield name, inner, extras


def _said_by(annotation: Any) -> str:
    return _text(get_args(annotation)[1:]) if get_origin(annotation) is Annotated else ""


def _said_within(annotation: Any) -> str:
    """The description within a union: of `Annotated[int, "How many"] | None`."""
    if get_origin(annotation) not in (Union, UnionType):
        return ""
    return next(filter(None, map(_said_by, get_args(annotation))), "")


def _text(extras: Iterable[Any]) -> str:
    """The first text, as such or as PEP 727's Doc()."""
    said = (one if isinstance(one, str) else getattr(one, "documentation", "") for one in extras)
    return next((one.strip() for one in said if isinstance(one, str) and one.strip()), "")


def without_odd_numbers(schema: Any) -> Any:
    """The schema without what JSON can't hold: a default of `math.inf`, or a bound that bounds nothing."""
    if place_of_odd_number(schema) is None:
        return schema
    if isinstance(schema, Mapping):
        return {
            name: without_odd_numbers(value)
            for name, value in schema.items()
            if not isinstance(value, float) and not (name in _VALUES and place_of_odd_number(value))
        } | {name: value for name, value in schema.items() if isinstance(value, float) and isfinite(value)}
    if isinstance(schema, list | tuple):
        return [without_odd_numbers(item) for item in schema if not isinstance(item, float) or isfinite(item)]
    return schema


def is_plain(value: Any) -> bool:
    """Whether reading its JSON without a type gives the same value."""
    if type(value) is dict:
        return all(type(key) is str and is_plain(inside) for key, inside in value.items())
    if type(value) is list:
        return all(map(is_plain, value))
    return value is None or type(value) in (str, int, float, bool)
