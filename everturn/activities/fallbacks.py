"""Whether the same model is asked again after a provider's error, or the next of the agent's `fallback_models`."""

from __future__ import annotations

from datetime import timedelta

from temporalio import activity
from temporalio.exceptions import ApplicationError

from everturn.activities.activity_errors import final_error
from everturn.activities.patience import effort_text, spend
from everturn.activities.retry_delays import retry_delay
from everturn.agent import Agent
from everturn.errors import InvalidReply, ProviderError
from everturn.limits import Patience
from everturn.lost_workers.poison_calls import details_left
from everturn.models import Model

INVALID_REPLIES = timedelta(minutes=1)
"""How long a turn is retried if its reply can't be read. A server that does not speak the protocol is more often set up
wrongly than failing for a moment."""

LEAST_RETRIES_OF_INVALID_REPLIES = 3
"""So often it is retried however long that takes: a stream that breaks off in the middle may have run for longer than
that. No more often, for each of them may cost as much as a whole reply."""

INVALID_SO_FAR = "everturn_invalid_replies"
"""In what a try leaves to the next one: how many had a reply that can't be read."""


def next_after(agent: Agent, failed: Model) -> str | None:
    """The name of the next model in line; None after the last one, and for a model that is not in line."""
    line = [agent.model.name, *(model.name for model in agent.fallback_models)]
    if failed.name not in line:
        return None
    return next(iter(line[line.index(failed.name) + 1 :]), None)


def after_error(error: ProviderError, patience: Patience, *, fallback: str | None) -> ApplicationError:
    """A retry after the delay that the provider asks for, or ours; final if none helps or patience runs out."""
    if not error.retry:
        return final_error(error, fallback=fallback)
    delay = retry_delay(error.retry_after, attempt=activity.info().attempt, longest=patience.max_retry_delay)
    longest = patience.model
    if isinstance(error, InvalidReply) and _count_invalid_reply() > LEAST_RETRIES_OF_INVALID_REPLIES:
        longest = min(longest, INVALID_REPLIES)
    if not spend(delay, longest):
        error.message = f"{error.message} ({effort_text()})"
        return final_error(error, fallback=fallback)
    return ApplicationError(error.message, {"cure": error.cure}, type=type(error).__name__, next_retry_delay=delay)


def _count_invalid_reply() -> int:
    """Counts the one of this try. `spend` hands the count on."""
    details = details_left()
    details[INVALID_SO_FAR] = count = int(details.get(INVALID_SO_FAR, 0)) + 1
    return count


def after_refusals(error: ProviderError, seconds: float, *, fallback: str | None) -> ApplicationError:
    """No more waiting: the provider has accepted nobody's call for so many seconds."""
    error.message = f"{error.message} (it has accepted no call for {timedelta(seconds=round(seconds))})"
    return final_error(error, fallback=fallback)
