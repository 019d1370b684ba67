"""Calls functions of the user's with a context if they take one: predicates, approvers, instructions.

A parameter annotated with the context's type gets it. Else the next positional parameter without a default gets it:
`lambda arguments, context: ...` gets it, `lambda arguments, limit=20: ...` does not.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from everturn.errors import InvalidAgent
from everturn.tools.context import TurnContext
from everturn.tools.given_schema import hidden_parameters


def with_context(function: Callable[..., Any], *given: Any, context: Any) -> Callable[[], Any]:
    """The function with its arguments bound, and the context, too, if it takes one."""
    by_name = _context_parameter(function, type(context))
    if by_name is not None:
        return partial(function, *given, **{by_name: context})
    if _takes_one_more(function, len(given)):
        return partial(function, *given, context)
    return partial(function, *given)


def check_takes(function: Callable[..., Any], *given: Any, context: Any) -> None:
    """Raises TypeError if it can't be called so, and ValueError if nobody can say."""
    call = with_context(function, *given, context=context)
    assert isinstance(call, partial)
    inspect.signature(function).bind(*call.args, **call.keywords)


def check_turn_function(name: str, option: str, value: object, *given: Any) -> None:
    """An agent's function can be called with a turn's context and what it is given, or without. Raises InvalidAgent."""
    if not callable(value):
        if value is not None and not isinstance(value, str):
            raise InvalidAgent(
                f"Agent {name!r} has {option}={value!r}, of type {type(value).__name__}.", cure="Write a function."
            )
        return
    try:
        if given:
            inspect.signature(value).bind(TurnContext(), *given)
        else:
            check_takes(value, context=TurnContext())
    except ValueError:  # a builtin without a readable signature
        return
    except TypeError as error:
        takes = "the TurnContext and the list of tools" if given else "the TurnContext, or nothing"
        raise InvalidAgent(
            f"Agent {name!r} has {option}={value!r}: {error}.", cure=f"Write a function that takes {takes}."
        ) from None


def _context_parameter(function: Callable[..., Any], context_type: type) -> str | None:
    """The parameter that is annotated with the context's type."""
    bound = function.keywords if isinstance(function, partial) else {}
    return next((name for name in hidden_parameters(function, context_type=context_type) if name not in bound), None)


def _takes_one_more(function: Callable[..., Any], count: int) -> bool:
    """Whether it has a further positional parameter without a default."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a builtin's
        return False
    positional = [
        parameter
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    return len(positional) > count and positional[count].default is inspect.Parameter.empty
