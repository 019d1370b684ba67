"""The type that an agent's last reply must have: its schema for the provider, and the reader of the reply."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue, TypeAdapter, ValidationError
from pydantic_core import SchemaValidator, from_json, to_json
from typing_extensions import TypeVar

from everturn.system.json_numbers import parse_json, place_of_odd_number
from everturn.tools.json_schema import ModelFacingSchema, bounded_lines, problems_in

OutputT_co = TypeVar("OutputT_co", covariant=True, default=Any)
"""For type checkers: the type of an agent's last reply, from `Agent(output=)`; Any if it has none."""

WRAPPED = "result"
"""Providers want an object at the top. A type that is not one, such as a list, becomes its only property."""

_FENCE = "```"


class InvalidOutput(Exception):
    """A reply that does not fit. The message is for the model: one problem a line, ten at most."""


@dataclass(frozen=True, slots=True, eq=False)
class OutputType:
    """An output type. `schema` is always of type object, as providers want it."""

    adapter: TypeAdapter[Any]
    schema: dict[str, Any]
    wrapped: bool

    @classmethod
    def from_type(cls, wanted: Any) -> OutputType:
        """Raises what pydantic raises for a type that it can't work with."""
        adapter: TypeAdapter[Any] = TypeAdapter(wanted)
        schema = adapter.json_schema(schema_generator=ModelFacingSchema)
        if wrapped := schema.get("type") != "object":
            definitions: dict[str, Any] = {}
            if "$defs" in schema:
                definitions["$defs"] = schema.pop("$defs")
            properties = {WRAPPED: schema}
            schema = {"type": "object", "properties": properties, "required": [WRAPPED], "additionalProperties": False}
            schema |= definitions
        return cls(adapter, schema, wrapped)

    def parse_reply(self, text: str, context: Any = None) -> JsonValue:
        """The value in a reply's text, checked, in JSON, with defaults filled in. `context`: what validators get as
        `info.context`. Raises InvalidOutput."""
        try:
            data = self.json_in(text)
            checked = self.adapter.validate_json(data, context=context)
            sent = parse_json(data)  # raises for a number beyond a double, of which pydantic would make null
            dumped = self._dump_checked(checked, sent, context)
        except ValidationError as error:
            raise InvalidOutput(problems_in(error)) from None
        except Exception as error:
            # No JSON, or a validator of the user's own that failed: the model is told of both.
            raise InvalidOutput(bounded_lines([f"{type(error).__name__}: {error}"])) from error
        if odd := place_of_odd_number(dumped):  # it would be recorded as something else
            raise InvalidOutput(bounded_lines([f"{odd}, which is not a number in JSON"]))
        return dumped

    def _dump_checked(self, checked: Any, sent: JsonValue, context: Any) -> JsonValue:
        """The value in JSON, as the type itself reads it again: by the names of its schema, and not as a serializer of
        the user's own writes it if that is for other readers. In the end, what the model sent."""
        for by_alias in (True, False):
            with suppress(Exception):  # of a serializer or validator of the user's own
                dumped: JsonValue = self.adapter.dump_python(checked, mode="json", by_alias=by_alias)
                if place_of_odd_number(dumped) is not None or self._is_readable(dumped, context):
                    return dumped
        return sent

    def _is_readable(self, dumped: JsonValue, context: Any) -> bool:
        """Whether the type reads it again, whatever validators of the user's own make of a value that has been through
        them already."""
        recorded = to_json(dumped)
        with suppress(Exception):  # a validator may raise anything
            self.adapter.validate_json(recorded, context=context)
            return True
        with suppress(Exception):
            _make_validator(_without_validators(self.adapter.core_schema)).validate_json(recorded)
            return True
        return False

    def to_typed(self, output: JsonValue, text: str) -> Any:
        """The value as the type itself. `text`: the reply; `output`: what `parse_reply` made of it. Raises
        InvalidOutput.

        The text comes first: a validator or a serializer that changes a value changes it once, as on the worker. But a
        text may be cut, and validators get no context here: then the recorded output stands for it, and validators that
        take an `info` have had their say on the worker."""
        try:
            return self.adapter.validate_json(self.json_in(text))
        except Exception:  # noqa: BLE001 - a validator may raise anything
            recorded = to_json(output)
        try:
            # `parse_reply` writes fields by their aliases, or else by their names.
            return self.adapter.validate_json(recorded, by_alias=True, by_name=True)
        except Exception:  # noqa: BLE001 - the same
            lenient = _make_validator(_without_validators(self.adapter.core_schema, of_types=("with-info",)))
        try:
            return lenient.validate_json(recorded, by_alias=True, by_name=True)
        except ValidationError as error:
            raise InvalidOutput(problems_in(error)) from None
        except Exception as error:
            raise InvalidOutput(bounded_lines([f"{type(error).__name__}: {error}"])) from error

    def json_in(self, text: str) -> bytes:
        """The JSON of the value in a reply's text. Raises ValueError."""
        # If a provider can't be held to a schema, models like to put JSON into a code block.
        data = _strip_fence(text).encode("utf-8", "replace")
        if not self.wrapped:
            return data
        value = from_json(data, allow_inf_nan=False)
        if isinstance(value, dict) and value.keys() == {WRAPPED}:
            value = value[WRAPPED]
        return to_json(value)


def _without_validators(schema: Any, *, of_types: Sequence[str] = ("with-info", "no-info")) -> Any:
    """A schema of pydantic's core without the user's own functions. Those `with-info` may need its context."""
    if isinstance(schema, list | tuple):
        return type(schema)(_without_validators(item, of_types=of_types) for item in schema)
    if not isinstance(schema, dict):
        return schema
    function = schema.get("function")
    is_meant = isinstance(function, dict) and function.get("type") in of_types
    if is_meant and str(schema.get("type")).startswith("function-") and "schema" in schema:
        kept = {name: schema[name] for name in ("ref",) if name in schema}
        return {**_without_validators(schema["schema"], of_types=of_types), **kept}
    return {name: _without_validators(value, of_types=of_types) for name, value in schema.items()}


def _make_validator(schema: Any) -> SchemaValidator:
    """The schema's own validator: pydantic would take the one that a model's class has already, of its whole schema."""
    try:
        return SchemaValidator(schema, _use_prebuilt=False)
    except TypeError:  # before pydantic 2.13
        return SchemaValidator(schema)


def _strip_fence(text: str) -> str:
    """The content of the code block, if the whole text is one; else the text.

    Without a regular expression: one would take minutes for a reply of empty lines."""
    first, opened, rest = text.strip().partition("\n")
    inner, closed, last = rest.rpartition("\n")
    fenced = opened and closed and first.rstrip() in (_FENCE, f"{_FENCE}json") and last.strip() == _FENCE
    if not fenced:
        return text
    return inner
