"""A tool that ran, and whose result can't be given to the model. It must not look like one that failed before it did
anything: a model repeats what failed, and would pay once more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from everturn.errors import NeedsApproval, OutcomeUnknown, Retry, ToolFailed

_OWN_WORDS = (ToolFailed, Retry, NeedsApproval, OutcomeUnknown)


class UnwrittenResult(Exception):
    """The tool ran. Raised from what is wrong with its result."""


@contextmanager
def after_effect() -> Iterator[None]:
    """What fails in here fails after the tool ran. Raises Unwritten, or the tool's own word."""
    try:
        yield
    except (UnwrittenResult, *_OWN_WORDS):
        raise
    except Exception as error:
        raise UnwrittenResult from error
