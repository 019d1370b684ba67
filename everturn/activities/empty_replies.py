"""Replies without a text and without a call: the model is asked again, and a third one counts as the end.

`Reply.is_empty` says which replies these are. Most models give one now and then, and rarely twice. Claude gives one
each time if it finds that its tools have said everything.
"""

from __future__ import annotations

from typing import Final

from temporalio import activity
from temporalio.exceptions import ApplicationError

from everturn.activities import fallbacks
from everturn.errors import InvalidReply
from everturn.limits import Patience
from everturn.records import Reply

EMPTY_REPLIES: Final = 3
"""From this try of a turn on, an empty reply is accepted as the end."""


def is_asked_again(reply: Reply, attempt: int) -> bool:
    """Whether the model is asked once more, instead of accepting the reply of this try."""
    return reply.is_empty and attempt < EMPTY_REPLIES


def error_of_another_try(reply: Reply, patience: Patience) -> ApplicationError | None:
    """Makes Temporal try the turn that runs here again; None if its reply is accepted, or patience has run out."""
    if not is_asked_again(reply, activity.info().attempt):
        return None
    error = fallbacks.after_error(InvalidReply(f"The reply of {reply.model!r} is empty."), patience, fallback=None)
    return None if error.non_retryable else error
