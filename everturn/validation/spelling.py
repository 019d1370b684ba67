"""Names unknown options in errors, with the nearest known one. Values are not shown: one may be a key."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Collection, Iterable
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

from everturn.errors import ConfigError
from everturn.validation.names_of_other_libraries import word_for

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_SECRET = re.compile(r"key|token|secret|password", re.IGNORECASE)


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant; None if none is close."""
    by_lower = {known_name.lower(): known_name for known_name in known}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1)
    if not near:
        return None
    return by_lower[near[0]]


def refuse_unknown(what: str, given: Iterable[str], known: Collection[str], *, error: type[ConfigError]) -> None:
    """Raises `error` for the first name that is not known."""
    for name in given:
        if name in known:
            continue
        if word := word_for(what, name):
            cure = f"everturn's word for it is {word}."
        elif near := nearest_name(name, known):
            cure = f"Did you mean {near!r}?"
        else:
            cure = f"There are {', '.join(known)}." if known else "It takes none."
        if "key_env" in known and _SECRET.search(name):
            cure = "A key stays in the worker's environment: key_env= takes the name of the key's variable."
        raise error(f"{what} has no option {name!r}.", cure=cure)


def known_options(
    what: str, error: type[ConfigError], *, also: Callable[[], Collection[str]] = tuple
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """For a constructor: an unknown option raises `error`, with the nearest one, in place of Python's TypeError; and
    so does one that is missing.

    `also`: options that it passes on to another function.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        # A dict, for its keys are an ordered set.
        own_options = {
            name: parameter
            for name, parameter in inspect.signature(function).parameters.items()
            if name not in {"self", "cls"} and parameter.kind is not parameter.VAR_KEYWORD
        }
        required = [
            name
            for name, parameter in own_options.items()
            if parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty
        ]

        @wraps(function)
        def checked_call(*args: P.args, **options: P.kwargs) -> R:
            if not options.keys() <= own_options.keys():
                refuse_unknown(what, options, [*own_options, *also()], error=error)
            if missing := [name for name in required if name not in options]:
                call = f"{what.removesuffix('()')}(..., {missing[0]}=...)"
                raise error(f"{what} was given no {missing[0]!r}.", cure=f"Write {call}.")
            return function(*args, **options)

        return checked_call

    return decorate


def known_fields(error: type[ConfigError]) -> Callable[[type[T]], type[T]]:
    """For a dataclass: as `known_options` for its constructor. It stands above @dataclass."""

    def decorate(cls: type[T]) -> type[T]:
        cast("Any", cls).__init__ = known_options(cls.__name__, error)(cls.__init__)
        return cls

    return decorate


def options_of(function: Callable[..., Any]) -> list[str]:
    """The names that it can be called with."""
    parameters = inspect.signature(function).parameters.values()
    return [
        parameter.name
        for parameter in parameters
        if parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
