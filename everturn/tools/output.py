"""The type that an agent's last reply is to have: its schema for the provider, and the reader of the reply."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails, from_json, to_json

from everturn.tools.descriptions import DescribedJsonSchema

WRAPPED = "result"
"""Providers want an object at the top. A type that is none, such as a list, is the one property of one."""

MAX_PROBLEMS = 10

_FENCE = "```"


class InvalidOutput(Exception):
    """A reply that does not fit. The message is for the model: one problem a line, ten at most."""


@dataclass(frozen=True, slots=True, eq=False)
class Output:
    """`schema` is of type object, as providers want it, whatever the type is."""

    adapter: TypeAdapter[Any]
    schema: dict[str, Any]
    wrapped: bool

    @classmethod
    def of(cls, wanted: Any) -> Output:
        """Raises what pydantic raises for a type that it can't work with."""
        adapter: TypeAdapter[Any] = TypeAdapter(wanted)
        schema = adapter.json_schema(schema_generator=_Schema)
        definitions = schema.pop("$defs", {})
        if "$ref" in schema:  # a model that contains itself
            schema = dict(definitions[schema["$ref"].rpartition("/")[2]])
        if wrapped := schema.get("type") != "object":
            schema = {"type": "object", "properties": {WRAPPED: schema}, "required": [WRAPPED]}
            schema["additionalProperties"] = False
        return cls(adapter, schema | {"$defs": definitions} if definitions else schema, wrapped)

    def read(self, text: str) -> JsonValue:
        """The value in a reply's text, checked, in JSON, with defaults filled in. Raises InvalidOutput."""
        # If a provider can't be held to a schema, models like to put JSON into a code block.
        data: str | bytes = _unfenced(text).encode("utf-8", "replace")
        try:
            if self.wrapped:
                value = from_json(data, allow_inf_nan=False)
                data = to_json(value[WRAPPED] if isinstance(value, dict) and value.keys() == {WRAPPED} else value)
            dumped: JsonValue = self.adapter.dump_python(self.adapter.validate_json(data), mode="json")
        except ValidationError as error:
            details = error.errors(include_url=False, include_context=False, include_input=False)
            shown = [_problem(detail) for detail in details[:MAX_PROBLEMS]]
            more = [f"… and {len(details) - MAX_PROBLEMS} more"] if len(details) > MAX_PROBLEMS else []
            raise InvalidOutput("\n".join(shown + more)) from None
        except Exception as error:
            # No JSON, or a validator of the user's own that failed: the model is told of both.
            raise InvalidOutput(f"{type(error).__name__}: {str(error)[:500]}") from error
        return dumped


def _unfenced(text: str) -> str:
    """What is in the text's one code block; the text itself if it is none.

    No regular expression: those that say this take minutes for a reply of empty lines."""
    first, opened, rest = text.strip().partition("\n")
    inner, closed, last = rest.rpartition("\n")
    fenced = opened and closed and first.rstrip() in (_FENCE, f"{_FENCE}json") and last.strip() == _FENCE
    return inner if fenced else text


class _Schema(DescribedJsonSchema):
    """No generated titles, no properties beyond those named: the model is to write nothing that nobody reads."""

    # A default that JSON can't hold is left out, and that is no news to anybody.
    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 - declared so by pydantic

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - pydantic's signature
        return False

    def model_schema(self, schema: Any) -> dict[str, Any]:
        return _closed(super().model_schema(schema))

    def dataclass_schema(self, schema: Any) -> dict[str, Any]:
        return _closed(super().dataclass_schema(schema))

    def typed_dict_schema(self, schema: Any) -> dict[str, Any]:
        return _closed(super().typed_dict_schema(schema))


def _closed(schema: dict[str, Any]) -> dict[str, Any]:
    if schema.get("type") == "object":
        schema.setdefault("additionalProperties", False)
    return schema


def _problem(detail: ErrorDetails) -> str:
    place = ".".join(map(str, detail["loc"]))
    return f"{place}: {detail['msg']}" if place else detail["msg"]
