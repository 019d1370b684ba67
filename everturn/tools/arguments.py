"""The arguments of a tool: their JSON schema, and the check of what a model sent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError

from everturn.system.json_numbers import place_of_odd_number
from everturn.tools import unknown_names
from everturn.tools.json_schema import (
    ModelFacingSchema,
    bounded_lines,
    is_plain,
    problems_in,
    without_odd_numbers,
)
from everturn.tools.odd_numbers import PROBLEM, odd_numbers_sent, place_by_schema, place_in_values
from everturn.validation.open_objects import takes_more
from everturn.validation.valid_schemas import valid_schema


class InvalidArguments(Exception):
    """What a model sent does not fit; the message is for the model: one problem a line, ten at most."""


class ModelArguments:
    """Arguments described by a pydantic model.

    `names` maps the model's fields to arguments, if their names differ. `whole`: the function's only parameter, if that
    takes the model itself.
    """

    def __init__(
        self, model: type[BaseModel], *, names: Mapping[str, str] | None = None, whole: str | None = None
    ) -> None:
        self.schema = object_schema(model)
        self.runs_user_code = runs_user_code(model.__pydantic_core_schema__)
        """Whether validation runs users' code: validators, default factories, classes of their own."""
        self._model = model
        self._names = names or {}
        self._by_name = names is not None
        self._whole = whole

    def validate(self, arguments: Mapping[str, Any], context: Any = None) -> dict[str, Any]:
        """The arguments as Python values, defaults filled in; raises InvalidArguments. `context`: what validators get
        as `info.context`."""
        return self._values_by_name(self._parse_arguments(arguments, context))

    def keywords(self, arguments: Mapping[str, Any], context: Any = None) -> dict[str, Any]:
        """What to call the function with; raises InvalidArguments."""
        parsed = self._parse_arguments(arguments, context)
        if self._whole is not None:
            return {self._whole: parsed}
        return self._values_by_name(parsed)

    def as_json(self, arguments: Mapping[str, Any], context: Any = None) -> dict[str, Any]:
        """The checked arguments as JSON, by the function's own names. Defaults are filled in, except for parameters at
        the end: the activity fills those in itself. Raises InvalidArguments."""
        written = self._as_json(arguments, context)
        if odd := place_of_odd_number(written):  # a default, or what a validator made: null would mean something else
            raise InvalidArguments(f"{odd}: {PROBLEM}")
        return written

    def _as_json(self, arguments: Mapping[str, Any], context: Any) -> dict[str, Any]:
        parsed = self._parse_arguments(arguments, context)
        if self.order is None:
            return parsed.model_dump(mode="json", by_alias=True)
        fields = list(type(parsed).model_fields)
        given = fields[: max((fields.index(field) + 1 for field in parsed.model_fields_set), default=0)]
        if not all(is_plain(getattr(parsed, field)) for field in given):
            # Temporal reads an activity's input by its types only if none of its parameters is left out.
            with suppress(PydanticSerializationError):
                return self._dump_fields(parsed, fields)
        return self._dump_fields(parsed, given)

    def _dump_fields(self, parsed: BaseModel, fields: list[str]) -> dict[str, Any]:
        written = parsed.model_dump(mode="json", include=set(fields))
        return {self._names.get(field, field): written[field] for field in fields}

    @property
    def order(self) -> tuple[str, ...] | None:
        """The function's parameters; None if it takes all arguments as one model."""
        if not self._by_name:
            return None
        return tuple(self._names.values())

    def _values_by_name(self, parsed: BaseModel) -> dict[str, Any]:
        # Not model_dump(): nested models have to stay what the function's type hints say.
        return {self._names.get(field, field): value for field, value in vars(parsed).items()} | (
            parsed.model_extra or {}
        )

    def _parse_arguments(self, arguments: Mapping[str, Any], context: Any) -> BaseModel:
        problems: list[str] = []
        if not takes_more(self.schema):
            problems = unknown_names.problem_of(arguments, self.schema)
        if odd := place_of_odd_number(arguments):
            problems.append(f"{odd}: {PROBLEM}")
        try:
            problems += unknown_names.problems_within(arguments, self.schema)
            # Validated as JSON: strict models then still accept a date as a string. Encoded with "replace": half an
            # emoji (a lone surrogate) is no reason to refuse the rest.
            text = json.dumps(arguments, ensure_ascii=False).encode("utf-8", "replace")
            parsed = self._model.model_validate_json(text, context=context)
        except ValidationError as error:
            raise InvalidArguments(problems_in(error, problems)) from None
        except Exception as error:
            # A user's own validator, or nesting beyond Python's recursion limit: the model is told of both.
            raise InvalidArguments(bounded_lines([f"{type(error).__name__}: {error}", *problems])) from error
        if problems:
            raise InvalidArguments(bounded_lines(problems))
        if odd_numbers_sent(arguments) and (place := self._odd_place(parsed)) is not None:
            raise InvalidArguments(bounded_lines([f"{place}: {PROBLEM}"]))
        return parsed

    def _odd_place(self, parsed: BaseModel) -> str | None:
        """Where the model sent a number that JSON does not have, as a text; None if nowhere."""
        sent = {name: value for name, value in vars(parsed).items() if name in parsed.model_fields_set}
        named = {self._names.get(field, field): value for field, value in sent.items()} | (parsed.model_extra or {})
        place = place_in_values(named)
        return place and place.removeprefix(".")


class SchemaArguments:
    """Arguments described by a JSON schema alone. Only names are checked here; the tool itself checks the rest."""

    order: tuple[str, ...] | None = None
    """As for ModelArguments; None, since the order is not known."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        valid = valid_schema(without_odd_numbers(schema))
        self.schema: dict[str, Any] = {"type": "object", "properties": {}, **valid}
        self.runs_user_code = False

    def validate(self, arguments: Mapping[str, Any], context: Any = None) -> dict[str, Any]:  # noqa: ARG002
        """The arguments as they are; raises InvalidArguments for a missing or an unknown name, and for a number that
        JSON does not have."""
        problems = [f"{name}: Field required" for name in self.schema.get("required", ()) if name not in arguments]
        if takes_more(self.schema) is False:
            problems += unknown_names.problem_of(arguments, self.schema)
        if odd := place_of_odd_number(arguments):
            problems.append(f"{odd}: {PROBLEM}")
        if odd_numbers_sent(arguments) and (place := place_by_schema(arguments, self.schema)) is not None:
            problems.append(f"{place.removeprefix('.')}: {PROBLEM}")
        if problems:
            raise InvalidArguments(bounded_lines(problems))
        return dict(arguments)

    keywords = as_json = validate


_PYDANTICS_OWN = frozenset(
    (
        *("any", "bool", "date", "datetime", "decimal", "default", "definition-ref", "definitions", "dict", "float"),
        *("int", "list", "literal", "model", "model-field", "model-fields", "none", "nullable", "set", "str", "time"),
        *("timedelta", "tuple", "typed-dict", "typed-dict-field", "union", "uuid"),
    )
)
"""The schema types that pydantic's core checks without running any Python code."""


def runs_user_code(schema: Any) -> bool:
    """Whether validation by this schema of pydantic's core may run a function that somebody wrote."""
    if isinstance(schema, list | tuple):
        return any(map(runs_user_code, schema))
    if not isinstance(schema, dict):
        return False
    if isinstance(schema.get("type"), str) and schema["type"] not in _PYDANTICS_OWN:
        return True
    if any(schema.get(own) for own in ("custom_init", "post_init", "default_factory")):
        return True
    fields = schema.get("fields", {})  # by names that users gave: a list, or a schema by name
    if isinstance(fields, dict):
        fields = [*fields.values()]
    within = [value for key, value in schema.items() if key not in ("fields", "metadata", "default", "expected")]
    return runs_user_code(within) or runs_user_code(fields)


def object_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The model's JSON schema as a tool's parameters."""
    schema = {"type": "object", "properties": {}} | model.model_json_schema(schema_generator=ModelFacingSchema)
    if "$defs" in schema:  # at the end
        schema["$defs"] = schema.pop("$defs")
    return schema
