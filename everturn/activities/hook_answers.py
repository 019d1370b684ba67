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
from everturn.policy import same_json
from everturn.records import Message, Record, Reply, ToolCall, ToolResult
from everturn.sizes import MAX_DEPTH, too_deep
from everturn.system.json_numbers import place_of_odd_number
from everturn.text.utf8 import mend

R = TypeVar("R", bound=BaseModel)


class UnfitHookAnswer(Exception):
    """The message says what is wrong, with a hook as its subject."""


def own_copy(given: Any) -> Any:
    """A copy that a hook may change in place. A ModelInput is not copied: it has all messages of the conversation."""
    if not isinstance(given, Reply | ToolCall | ToolResult):
        return given
    return given.model_copy(deep=True)


def check_answer(answer: Any, *, given: Any, original: Any) -> Any:
    """What the hook means: what it returned; or `given`, a copy of `original`, if it returned nothing and changed that.
    Every text in it can be written. Raises Unfit."""
    if answer is None and isinstance(given, Record) and not same_record(given, original):
        answer = given
    match answer:
        case None:
            return None
        case str():
            return mend(answer)
        case DenyCall() | AskApproval() | StopWith() | StallWith():
            texts: dict[str, Any] = {field.name: _text_field(answer, field.name) for field in fields(answer)}
            return replace(answer, **texts)
        case ModelInput():
            return _check_input(answer, original)
        case _:
            return answer if same_record(answer, original) else validated_record(answer, type(answer).__name__)


def same_record(first: Record, second: Record) -> bool:
    """Whether they are the same as JSON, whose 1 is not true. Only arguments of calls have values of any kind."""
    if first != second:
        return False
    both = zip(_calls_in(first), _calls_in(second), strict=True)
    return all(same_json(call.arguments, other.arguments) for call, other in both)


def _calls_in(record: Record) -> tuple[ToolCall, ...]:
    match record:
        case ToolCall():
            return (record,)
        case Reply():
            return tuple(record.tool_calls)
        case _:
            return ()


def _text_field(answer: Any, name: str) -> str:
    value = getattr(answer, name)
    if not isinstance(value, str):
        raise UnfitHookAnswer(
            f"the {name} of its {type(answer).__name__} is of type {type(value).__name__}, and not a text"
        )
    return mend(value)


def _check_input(answer: ModelInput, original: ModelInput) -> ModelInput:
    original_ids = set(map(id, original.messages))
    messages = _all_of(answer, "messages", Message)
    if not isinstance(answer.settings, ModelSettings):
        kind = type(answer.settings).__name__
        raise UnfitHookAnswer(f"the settings of its ModelInput are of type {kind}, and not ModelSettings")
    return replace(
        answer,
        messages=tuple(
            message if id(message) in original_ids else validated_record(message, "message") for message in messages
        ),
        instructions=_text_field(answer, "instructions"),
        tools=_all_of(answer, "tools", str),
        settings=answer.settings
        if answer.settings is original.settings
        else validated_record(answer.settings, "ModelSettings"),
    )


def _all_of(answer: ModelInput, name: str, kind: type) -> tuple[Any, ...]:
    values = getattr(answer, name)
    if not isinstance(values, tuple | list):
        raise UnfitHookAnswer(f"the {name} of its ModelInput are of type {type(values).__name__}, and no tuple")
    if other := next((element for element in values if not isinstance(element, kind)), None):
        raise UnfitHookAnswer(
            f"among the {name} of its ModelInput is one of type {type(other).__name__}, and not {kind.__name__}"
        )
    return tuple(values)


def validated_record(record: R, what: str) -> R:
    """The same record, validated: `model_copy(update=)` and `model_construct` check nothing. Raises Unfit."""
    values = _as_plain(record)
    if too_deep(values):
        raise UnfitHookAnswer(f"it returned a {what} that is nested too deeply")
    if (place := place_of_odd_number(values)) is not None:
        raise UnfitHookAnswer(f"it returned a {what} with a number that JSON does not have: {place}")
    try:
        validated = type(record).model_validate(values)
        validated.model_dump_json()
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise UnfitHookAnswer(f"it returned a {what} that is none: {place}: {first['msg']}") from None
    except (PydanticSerializationError, TypeError, ValueError, RecursionError) as error:
        raise UnfitHookAnswer(f"it returned a {what} that can't be written as JSON: {error}") from None
    return validated


def _as_plain(value: Any, level: int = 0) -> Any:
    """The value with records as dicts of all their fields: pydantic's own dump leaves defaults out."""
    if level > 2 * MAX_DEPTH:  # or it contains itself
        raise UnfitHookAnswer("what it returned is nested too deeply")
    if isinstance(value, BaseModel):
        return {name: _as_plain(inner, level + 1) for name, inner in value.__dict__.items()}
    if isinstance(value, dict):
        return {mend(k) if isinstance(k, str) else k: _as_plain(inner, level + 1) for k, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_as_plain(inner, level + 1) for inner in value]
    return mend(value) if isinstance(value, str) else value
