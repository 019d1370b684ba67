"""Checks field by field what a hook has returned: it is recorded, and decides what runs.

Unchecked, a value that can't be written would be retried for ever, and a guardrail's `StopWith(None)` would be ignored.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError

from everturn.hooks import AskApproval, DenyCall, ModelInput, StallWith, StopWith
from everturn.models import ModelSettings
from everturn.records import Message, Record, Reply, ToolCall, ToolResult
from everturn.sizes import MAX_DEPTH, too_deep
from everturn.system.json_numbers import place_of_odd_number
from everturn.text.utf8 import mend

R = TypeVar("R", bound=BaseModel)


class Unfit(Exception):
    """The message says what is wrong, with a hook as its subject."""


def own_copy(given: Any) -> Any:
    """A copy that a hook may change in place. A ModelInput is not copied: it has all messages of the conversation."""
    return given.model_copy(deep=True) if isinstance(given, Reply | ToolCall | ToolResult) else given


def checked(said: Any, *, given: Any, before: Any) -> Any:
    """What the hook means: what it returned; or `given`, a copy of `before`, if it returned nothing and changed that.
    Every text in it can be written. Raises Unfit."""
    if said is None:
        said = given if isinstance(given, Record) and given != before else None
    match said:
        case None:
            return None
        case str():
            return mend(said)
        case DenyCall() | AskApproval() | StopWith() | StallWith():
            texts: dict[str, Any] = {field.name: _text(said, field.name) for field in fields(said)}
            return replace(said, **texts)
        case ModelInput():
            return _input(said, before)
        case _:
            return said if said == before else written(said, type(said).__name__)


def _text(said: Any, name: str) -> str:
    value = getattr(said, name)
    if not isinstance(value, str):
        raise Unfit(f"the {name} of its {type(said).__name__} is of type {type(value).__name__}, and not a text")
    return mend(value)


def _input(said: ModelInput, before: ModelInput) -> ModelInput:
    ours = set(map(id, before.messages))
    messages = _all_of(said, "messages", Message)
    if not isinstance(said.settings, ModelSettings):
        kind = type(said.settings).__name__
        raise Unfit(f"the settings of its ModelInput are of type {kind}, and not ModelSettings")
    return replace(
        said,
        messages=tuple(one if id(one) in ours else written(one, "message") for one in messages),
        instructions=_text(said, "instructions"),
        tools=_all_of(said, "tools", str),
        settings=said.settings if said.settings is before.settings else written(said.settings, "ModelSettings"),
    )


def _all_of(said: ModelInput, name: str, kind: type) -> tuple[Any, ...]:
    values = getattr(said, name)
    if not isinstance(values, tuple | list):
        raise Unfit(f"the {name} of its ModelInput are of type {type(values).__name__}, and no tuple")
    if other := next((one for one in values if not isinstance(one, kind)), None):
        raise Unfit(
            f"among the {name} of its ModelInput is one of type {type(other).__name__}, and not {kind.__name__}"
        )
    return tuple(values)


def written(record: R, what: str) -> R:
    """The same record, validated: `model_copy(update=)` and `model_construct` check nothing. Raises Unfit."""
    values = _plain(record)
    if too_deep(values):
        raise Unfit(f"it returned a {what} that is nested too deeply")
    if (place := place_of_odd_number(values)) is not None:
        raise Unfit(f"it returned a {what} with a number that JSON does not have: {place}")
    try:
        made = type(record).model_validate(values)
        made.model_dump_json()
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise Unfit(f"it returned a {what} that is none: {place}: {first['msg']}") from None
    except (PydanticSerializationError, TypeError, ValueError, RecursionError) as error:
        raise Unfit(f"it returned a {what} that can't be written as JSON: {error}") from None
    return made


def _plain(value: Any, level: int = 0) -> Any:
    """The value with records as dicts of all their fields: pydantic's own dump leaves defaults out."""
    if level > 2 * MAX_DEPTH:  # or it contains itself
        raise Unfit("what it returned is nested too deeply")
    if isinstance(value, BaseModel):
        return {name: _plain(one, level + 1) for name, one in value.__dict__.items()}
    if isinstance(value, dict):
        return {mend(k) if isinstance(k, str) else k: _plain(one, level + 1) for k, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one, level + 1) for one in value]
    return mend(value) if isinstance(value, str) else value
