"""How a failed activity tells Temporal what to do: try again and when, or give up and why.

Patience is a time, and only failures spend it: each reported failure adds how long its try took and the wait that
follows. A worker that is lost, a deploy or an outage of the workers reports nothing and so spends nothing. What is
spent goes from try to try in the heartbeat details, which Temporal keeps outside the history.
"""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

from everturn import names
from everturn.activities.attempts import this_try
from everturn.activities.lost_tries import leave, left
from everturn.errors import EverturnError, InvalidReply, ProviderError
from everturn.models import Patience
from everturn.records import Reply

FIRST_DELAY_SECONDS = 0.5
LONGEST_OWN_DELAY_SECONDS = 30.0

FIRST_WAIT_SECONDS = 0.2
"""Of Temporal, before it tries a failed activity again by itself: see timeouts.py. Each later one is twice that."""

INVALID_REPLIES = timedelta(minutes=1)
"""How long a reply that can't be read is asked for again: a server that does not speak the protocol is wrongly set up
more often than passing ill."""

EMPTY_REPLIES = 3
"""From this try of a turn on, an empty reply is accepted as the end."""

SPENT = "everturn_spent_seconds"


def final(error: EverturnError, *, fallback: str | None = None, too_long: bool = False) -> ApplicationError:
    """No retry: the conversation goes on with the `fallback` model, or shows the model less if it was `too_long`;
    without either it stalls with this cause and cure."""
    details: dict[str, Any] = {"cure": error.cure}
    details |= {"too_long": True} if too_long else {"fallback": fallback} if fallback else {}
    return ApplicationError(error.message, details, type=type(error).__name__, non_retryable=True)


def of_provider(error: ProviderError, patience: Patience, *, fallback: str | None) -> ApplicationError:
    """A retry after the delay that the provider asks for, or ours; final if none helps or patience runs out."""
    if not error.retry:
        return final(error, fallback=fallback)
    attempt = activity.info().attempt
    delay = retry_delay(error.retry_after, attempt=attempt, longest=patience.max_retry_delay)
    longest = min(patience.model, INVALID_REPLIES) if isinstance(error, InvalidReply) else patience.model
    if not spend(delay, longest):
        error.message = f"{error.message} (tried {attempt} times, for {longest})"
        return final(error, fallback=fallback)
    return ApplicationError(error.message, {"cure": error.cure}, type=type(error).__name__, next_retry_delay=delay)


def after_reply(error: Exception) -> ApplicationError:
    """No retry, which would be paid for again: the conversation stalls."""
    return ApplicationError(
        f"The model replied, but its reply could not be planned: {type(error).__name__}: {error}",
        {"cure": "This is a fault of everturn's: please report it. `resume` asks the model again."},
        type=names.REPLY_NOT_PLANNED,
        non_retryable=True,
    )


def not_asked(error: Exception, *, fallback: str | None) -> ApplicationError:
    """No retry, which would fail in the same way, without an end and unseen."""
    why = f"The model could not be asked: {type(error).__name__}: {error}"
    cure = "This is a fault of everturn's: please report it. `resume` tries it again, also with another model."
    details: dict[str, Any] = {"cure": cure} | ({"fallback": fallback} if fallback else {})
    return ApplicationError(why, details, type=names.MODEL_NOT_ASKED, non_retryable=True)


def of_empty(reply: Reply, patience: Patience) -> ApplicationError | None:
    """Another try for an empty reply; None after EMPTY_REPLIES tries: then the empty reply is the answer.

    Most models do that now and then, and rarely twice. Claude does it each time if it finds that its tools have said
    everything.
    """
    if activity.info().attempt >= EMPTY_REPLIES:
        return None
    again = of_provider(InvalidReply(f"The reply of {reply.model!r} is empty."), patience, fallback=None)
    return None if again.non_retryable else again


def handed_over() -> ApplicationError:
    """This worker shuts down: another takes over at once."""
    return ApplicationError(
        "The worker shut down.", type=names.WORKER_SHUTDOWN, next_retry_delay=timedelta(milliseconds=1)
    )


def spend(delay: timedelta, longest: timedelta) -> bool:
    """Spends the time of this try and of the delay after it; False if patience does not last that long."""
    info = activity.info()
    if info.is_local:  # it has no heartbeats to remember what it spent: assume that all tries took as long as this one
        waits = timedelta(seconds=FIRST_WAIT_SECONDS * (2 ** min(info.attempt, 16) - 1))
        return info.attempt * (this_try() + delay) + waits <= longest
    total = spent() + this_try() + delay
    if total > longest:
        return False
    leave(**{SPENT: total.total_seconds()})
    return True


def spent() -> timedelta:
    """What the tries before this one have spent."""
    return timedelta(seconds=left().get(SPENT, 0.0))


def retry_delay(retry_after: float | None, *, attempt: int, longest: timedelta) -> timedelta:
    if retry_after is not None:
        # Slightly later than asked, and not all at once.
        return timedelta(seconds=min(retry_after * (1 + random.random() / 10), longest.total_seconds()))
    doubled = min(FIRST_DELAY_SECONDS * 2 ** min(attempt - 1, 16), LONGEST_OWN_DELAY_SECONDS)
    return min(timedelta(seconds=doubled * (0.5 + random.random() / 2)), longest)
