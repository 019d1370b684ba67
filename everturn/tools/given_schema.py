"""Arguments that a JSON schema or a pydantic model describes, in place of a function's signature."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, get_type_hints

from pydantic import BaseModel, PydanticUserError
from pydantic_core import SchemaError

from everturn.errors import InvalidTool
from everturn.tools.arguments import ModelArguments, SchemaArguments
from everturn.tools.signature import Signature, describe_function, mentions_type, namespace_of, unwrap_function
from everturn.validation.explaining import in_one_line

InputType = type[BaseModel] | Mapping[str, Any]
"""A pydantic model or a JSON schema of type object."""


def given_arguments(given: Any, *, place: str, option: str) -> ModelArguments | SchemaArguments:
    """Raises InvalidTool."""
    if isinstance(given, type) and issubclass(given, BaseModel):
        try:
            return ModelArguments(given)
        except (PydanticUserError, SchemaError, NameError, TypeError, ValueError) as error:
            raise InvalidTool(
                f"{place} has {option}={given.__name__}: {in_one_line(error)}", cure="Use types that JSON can carry."
            ) from error
    is_object = isinstance(given, Mapping) and given.get("type", "object") == "object"
    if is_object and isinstance(given.get("properties", {}), Mapping) and isinstance(given.get("required", []), list):
        return SchemaArguments(given)
    raise InvalidTool(
        f"{place} has {option}={given!r}.",
        cure="Write a JSON schema of type object ({'type': 'object', 'properties': {...}}) or a pydantic model.",
    )


def given_signature(function: Callable[..., Any], given: Any, *, context_type: type) -> Signature:
    """The signature of a function whose arguments `given` describes; it gets them by name. Raises InvalidTool."""
    label = describe_function(function)
    arguments = given_arguments(given, place=f"Tool {label}", option="parameters")
    hidden = hidden_parameters(function, context_type=context_type)
    try:
        parameters = tuple(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # a builtin's: it will say itself what it can't take
        parameters = ()
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters) or not parameters
    by_name = {
        parameter.name: parameter
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    }
    named = arguments.schema["properties"]
    if not takes_any and (extra := [name for name in named if name not in by_name]):
        raise InvalidTool(
            f"Tool {label} has no parameter {extra[0]!r}, but its schema has one.",
            cure="Give the parameters the schema's names, or take **arguments.",
        )
    needed = [
        name for name, parameter in by_name.items() if parameter.default is parameter.empty and name not in hidden
    ]
    required = arguments.schema.get("required", ())
    if lacking := [name for name in needed if name not in required]:
        raise InvalidTool(
            f"Tool {label} needs {lacking[0]!r}, but its schema does not require it.",
            cure=f"Put it into the schema's 'required', or give {lacking[0]} a default.",
        )
    described = inspect.getdoc(unwrap_function(function)) or arguments.schema.get("description", "")
    return Signature(arguments=arguments, context_parameters=hidden, description=str(described))


def whatever_it_takes(function: Callable[..., Any], *, context_type: type) -> dict[str, Any] | None:
    """A schema for a function that takes `**arguments`, with its required parameters; None for other functions."""
    try:
        parameters = tuple(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    hidden = hidden_parameters(function, context_type=context_type)
    by_name = [
        parameter
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    ]
    needed = [
        parameter.name for parameter in by_name if parameter.default is parameter.empty and parameter.name not in hidden
    ]
    return {"type": "object", "properties": {}, "required": needed}


def hidden_parameters(function: Callable[..., Any], *, context_type: type) -> tuple[str, ...]:
    """The parameters annotated with `context_type`. Other annotations may be invalid."""
    annotations = annotations_of(function, (context_type,))
    return tuple(name for name, annotation in annotations.items() if mentions_type(annotation, context_type))


def annotations_of(function: Callable[..., Any], known: Iterable[type]) -> dict[str, Any]:
    """The parameters' annotations that can be resolved. `known`: types that its module need not have imported."""
    target = unwrap_function(function)
    namespace = {**{known_type.__name__: known_type for known_type in known}, **namespace_of(target)}
    annotations = {}
    for name, annotation in getattr(target, "__annotations__", {}).items():
        holder = SimpleNamespace(__annotations__={name: annotation})
        with suppress(Exception):  # typing raises many kinds, for what only its own module knows
            if name != "return":
                annotations[name] = get_type_hints(holder, globalns=namespace, include_extras=True)[name]
    return annotations
