"""Which of a tool's own exceptions are temporary failures, after which its call is retried."""

from __future__ import annotations

from typing import Any

from everturn.errors import InvalidTool

Kinds = type[Exception] | tuple[type[Exception], ...]
"""As `except` takes them."""


def kinds_of(given: Any) -> Any:
    """The exception types as a tuple. Does not check them: `check_retry` does."""
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
