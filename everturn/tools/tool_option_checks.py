"""Checks of a tool when it is made. Each raises InvalidTool."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any

from everturn import names
from everturn.errors import InvalidTool
from everturn.tools.context import ToolContext
from everturn.tools.signature import describe_function, unwrap_function
from everturn.tools.with_context import check_takes
from everturn.validation import durations

_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")
_PROVIDERS_NAME = re.compile(r"[a-zA-Z0-9_$.:-]{1,128}")
"""What providers call their own tools, such as Moonshot's $web_search."""

Kinds = type[Exception] | tuple[type[Exception], ...]
"""Of temporary failures, after which a call is retried; as `except` takes them."""


def check_name(name: object, *, by_provider: bool = False) -> None:
    if not isinstance(name, str) or not (_PROVIDERS_NAME if by_provider else _NAME).fullmatch(name):
        raise InvalidTool(
            f"{name!r} is not a valid name for a tool: it needs 1 to 64 of a-z, A-Z, 0-9, _ "
            "and -, and can't start with a digit or -.",
            cure="Give it one with tool(name='...').",
        )
    if name in names.RESERVED_TOOL_NAMES:
        raise InvalidTool(
            f"No tool can be called {name!r}: everturn itself uses that name.",
            cure="Give it another with tool(name='...').",
        )


def check_choice(tool: Any, option: str, choices: tuple[str, ...]) -> None:
    value = getattr(tool, option)
    if value not in choices:
        raise InvalidTool(f"Tool {tool.name!r} has {option}={value!r}.", cure=f"Write one of {', '.join(choices)}.")


def check_duration(tool: Any, option: str) -> None:
    value = getattr(tool, option)
    if problem := durations.problem_of(value):
        raise InvalidTool(f"Tool {tool.name!r} has {option}={value!r}.", cure=problem)


def check_local(tool: Any, *, longest: timedelta) -> None:
    match tool.local:
        case None | False:
            return
        case "auto" if tool.effect != "once":
            return
        case "auto":
            raise InvalidTool(
                f"Tool {tool.name!r} has local='auto' and effect='once'.",
                cure="A local call may run again with its workflow task: leave local out.",
            )
        case True if tool.effect == "read" and tool.timeout <= longest:
            return
        case True:
            raise InvalidTool(
                f"Tool {tool.name!r} is local, with effect={tool.effect!r} and timeout={tool.timeout}.",
                cure=f"A local tool needs effect='read' and a timeout of at most {longest}.",
            )
        case other:
            raise InvalidTool(
                f"Tool {tool.name!r} has local={other!r}.", cure="Write local=True, False or 'auto', or leave it out."
            )


def check_approval(tool: Any) -> None:
    predicate = tool.needs_approval
    if isinstance(predicate, bool):
        return
    try:
        check_takes(predicate, {}, context=ToolContext())
    except ValueError:  # a builtin without a readable signature; callable all the same
        return
    except TypeError:
        raise InvalidTool(
            f"Tool {tool.name!r} has needs_approval={predicate!r}.",
            cure="Write True, False, or a function of one parameter, which gets the dict of arguments, "
            "or of two, of which the second gets the ToolContext.",
        ) from None


def kinds_of(given: Any) -> Any:
    """The exception types of `retry=` as a tuple. Does not check them: `check_retry` does."""
    if isinstance(given, list | tuple):
        return tuple(given)
    return (given,)


def check_retry(name: str, retry: tuple[type[Exception], ...], *, effect: str, runs_on: str) -> None:
    """Raises InvalidTool."""
    wrong = [
        error_type for error_type in retry if not (isinstance(error_type, type) and issubclass(error_type, Exception))
    ]
    if wrong:
        raise InvalidTool(
            f"Tool {name!r} has retry={retry!r}.",
            cure="Write exception types, such as retry=(ConnectionError, TimeoutError).",
        )
    if retry and effect == "once":
        raise InvalidTool(
            f"Tool {name!r} has retry={retry!r} and effect='once', which is never retried.",
            cure="Leave retry= out, or say effect='idempotent' if running it twice does no harm.",
        )
    if retry and runs_on == "client":
        raise InvalidTool(
            f"Tool {name!r} has retry={retry!r}, but no worker runs it.",
            cure="Leave retry= out: your own code answers its calls and can try again.",
        )


def own_name(function: Callable[..., Any]) -> str:
    named = function
    while isinstance(named, partial):
        named = named.func
    name = getattr(named, "__name__", None)
    if name is None or name == "<lambda>":
        raise InvalidTool(f"{describe_function(function)} has no name of its own.", cure="Write tool(name='...')(it).")
    return str(name)


def refuse_unbound(function: Any, given: Mapping[str, Any]) -> None:
    """Raises InvalidTool for a method without its object, as a decorator in a class gets it: which object a call would
    be for is not known there. `given`: the tool's options, for the cure."""
    target = unwrap_function(function) if inspect.isfunction(function) else None
    code = getattr(target, "__code__", None)
    if target is None or code is None or code.co_varnames[: code.co_argcount][:1] != ("self",):
        return
    if "self" in target.__annotations__:
        return
    owner, _, name = target.__qualname__.rpartition("<locals>.")[2].rpartition(".")
    written = ", ".join(f"{key}={_as_code(value)}" for key, value in given.items() if not key.startswith("_"))
    example = f"({owner or 'Shop'}().{name})"
    if written:
        example = f"({written}){example}"
    raise InvalidTool(
        f"Tool {describe_function(function)} can't take the parameter 'self': this is a method without its object.",
        cure=f"Leave the method as it is, without @tool, and make the tool of a bound one: tool{example}.",
    )


def _as_code(value: object) -> str:
    """The value as in code."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return getattr(value, "__name__", "") or repr(value).replace("datetime.", "", 1)
