"""What a tool raised: the exceptions that count, also in a group (such as a TaskGroup's) or behind `raise ... from`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Final, TypeVar

from everturn.errors import NeedsApproval, OutcomeUnknown, Retry, ToolFailed
from everturn.tools.arguments import InvalidArguments

E = TypeVar("E", bound=BaseException)

PLAIN_WORDS: Final = (ToolFailed, Retry, InvalidArguments)
"""Their messages are for the model as they are."""

_SAYS_ALL: Final = (*PLAIN_WORDS, NeedsApproval, OutcomeUnknown)
"""Whoever raises one of these has decided what is to happen, whatever it was made `from`."""

_MOST_CAUSES: Final = 10


def errors_in(error: BaseException) -> Iterator[BaseException]:
    """The exceptions of a group, of its groups, and so on, in order; an exception that is no group is alone."""
    if isinstance(error, BaseExceptionGroup):
        for inside in error.exceptions:
            yield from errors_in(inside)
    else:
        yield error


def find_error(error: BaseException, kinds: type[E] | tuple[type[E], ...], *, also_handled: bool = False) -> E | None:
    """The first exception of these kinds: the error itself, one of its group, or one that it was raised `from`.
    `also_handled`: or one that was being handled when it was raised, as when the closing of a connection fails."""
    return next(_of_kinds(error, kinds, depth=_MOST_CAUSES, also_handled=also_handled), None)


def all_are(error: BaseException, kinds: tuple[type[BaseException], ...]) -> bool:
    """Whether each exception of the group is of these kinds, or was raised from one that is."""
    return all(find_error(inside, kinds) is not None for inside in errors_in(error))


def longest_wait(error: BaseException) -> timedelta | None:
    """The longest `after` of the Retries in it."""
    waits = [
        retry.after for inside in errors_in(error) if (retry := find_error(inside, Retry)) and retry.after is not None
    ]
    return max(waits, default=None)


def _of_kinds(
    error: BaseException, kinds: type[E] | tuple[type[E], ...], *, depth: int, also_handled: bool
) -> Iterator[E]:
    for inside in errors_in(error):
        if isinstance(inside, kinds):
            yield inside
        elif not isinstance(inside, _SAYS_ALL):
            yield from _in_cause(inside, kinds, depth=depth, also_handled=also_handled)
    if isinstance(error, BaseExceptionGroup):
        yield from _in_cause(error, kinds, depth=depth, also_handled=also_handled)


def _in_cause(
    error: BaseException, kinds: type[E] | tuple[type[E], ...], *, depth: int, also_handled: bool
) -> Iterator[E]:
    cause = error.__cause__
    if cause is None and also_handled and not error.__suppress_context__:
        cause = error.__context__
    if cause is not None and depth:
        yield from _of_kinds(cause, kinds, depth=depth - 1, also_handled=also_handled)
