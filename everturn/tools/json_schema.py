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

from everturn.system.json_numbers import place_of_odd_number
from everturn.text.shortening import shortened_line

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
        json_schema = super().generate(schema, mode)
        definitions: dict[str, Any] = json_schema.pop("$defs", {})
        if "$ref" in json_schema:  # a model that contains itself
            json_schema = dict(definitions[json_schema["$ref"].rpartition("/")[2]])
        for titled in (json_schema, *definitions.values()):
            titled.pop("title", None)
        if definitions:
            json_schema["$defs"] = definitions
        whole: JsonSchemaValue = without_odd_numbers(json_schema)
        return whole

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - pydantic's signature
        return False

    def model_schema(self, schema: Any) -> JsonSchemaValue:
        return _close_object(_add_descriptions(super().model_schema(schema), schema.get("cls")))

    def dataclass_schema(self, schema: Any) -> JsonSchemaValue:
        return _close_object(_add_descriptions(super().dataclass_schema(schema), schema.get("cls")))

    def typed_dict_schema(self, schema: Any) -> JsonSchemaValue:
        return _close_object(_add_descriptions(super().typed_dict_schema(schema), schema.get("cls")))


def problems_in(error: ValidationError, others: Sequence[str] = ()) -> str:
    """What does not fit, for the model: one problem a line, ten at most; then how many more there are."""
    details = error.errors(include_url=False, include_context=False)
    lines = [_problem_line(detail) for detail in details[:MAX_PROBLEMS]]
    return bounded_lines([*lines, *others], more=len(details) - len(lines))


def bounded_lines(problems: Sequence[str], *, more: int = 0) -> str:
    """Joins the lines, ten at most. `more`: how many further problems there are without a line."""
    lines = [shortened_line(line, MAX_LINE_CHARS) for line in problems]
    first_lines = lines[:MAX_PROBLEMS]
    more += max(0, len(lines) - MAX_PROBLEMS)
    if more:
        first_lines.append(f"… and {more} more")
    return "\n".join(first_lines)


def _shortened_value(text: str) -> str:
    return shortened_line(text, MAX_VALUE_CHARS)


def _problem_line(detail: ErrorDetails) -> str:
    """One line: where, what is wrong, and what was sent."""
    place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in detail["loc"]).lstrip(".")
    # "unable to parse string as an integer" says again what the sent value shows.
    message = re.sub(r", unable to parse string as an? [\w ]+$", "", detail["msg"])
    message = re.sub(r"^(Value|Assertion) error, ", "", message)
    if detail["type"] != "missing" and detail["loc"]:
        message += f", got {_shortened_value(json.dumps(detail['input'], ensure_ascii=False, default=str))}"
    if not place:
        return message
    return f"{_shortened_value(place)}: {message}"


def _close_object(schema: JsonSchemaValue) -> JsonSchemaValue:
    if schema.get("type") == "object":
        schema.setdefault("additionalProperties", False)
    return schema


def _add_descriptions(schema: JsonSchemaValue, cls: Any) -> JsonSchemaValue:
    """The schema, with descriptions if it has none: a `description` of a Field's comes first."""
    properties = schema.get("properties", {})
    for name, annotation, extras in _fields_of(cls):
        of_field = properties.get(name)
        if of_field is None:
            continue
        if text := _first_text(extras) or _description_within(annotation):
            of_field.setdefault("description", text)
        items = of_field.get("items")
        if (
            isinstance(items, dict)
            and len(get_args(annotation)) == 1
            and (text := _description_of(get_args(annotation)[0]))
        ):
            items.setdefault("description", text)
    return schema


def _fields_of(cls: Any) -> Iterator[tuple[str, Any, Iterable[Any]]]:
    """Of each field: its name in JSON, its annotation, and what is beside that in Annotated."""
    if isinstance(cls, type) and issubclass(cls, BaseModel):
        for name, field in cls.model_fields.items():
            alias = field.alias
            if isinstance(field.validation_alias, str):
                alias = field.validation_alias
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


def _description_of(annotation: Any) -> str:
    if get_origin(annotation) is not Annotated:
        return ""
    return _first_text(get_args(annotation)[1:])


def _description_within(annotation: Any) -> str:
    """The description within a union: of `Annotated[int, "How many"] | None`."""
    if get_origin(annotation) not in (Union, UnionType):
        return ""
    return next(filter(None, map(_description_of, get_args(annotation))), "")


def _first_text(extras: Iterable[Any]) -> str:
    """The first text, as such or as PEP 727's Doc()."""
    for extra in extras:
        text = getattr(extra, "documentation", extra)
        if isinstance(text, str) and text.strip():
            return text.strip()
    return ""


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
