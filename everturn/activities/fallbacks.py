"""Whether the same model is asked again after a provider's error, or the next of the agent's `fallback_models`."""

from __future__ import annotations

from datetime import timedelta

from temporalio import activity
from temporalio.exceptions import ApplicationError

from everturn.activities.activity_errors import final_error
from everturn.activities.patience import spend
from everturn.activities.retry_delays import retry_delay
from everturn.agent import Agent
from everturn.errors import InvalidReply, ProviderError
from everturn.limits import Patience
from everturn.models import Model

INVALID_REPLIES = timedelta(minutes=1)
"""How long a turn is retried if its reply can't be read. A server that does not speak the protocol is more often set up
wrongly than failing for a moment."""


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
    attempt = activity.info().attempt
    delay = retry_delay(error.retry_after, attempt=attempt, longest=patience.max_retry_delay)
    longest = patience.model
    if isinstance(error, InvalidReply):
        longest = min(longest, INVALID_REPLIES)
    if not spend(delay, longest):
        error.message = f"{error.message} (tried {attempt} times, for {longest})"
        return final_error(error, fallback=fallback)
    return ApplicationError(error.message, {"cure": error.cure}, type=type(error).__name__, next_retry_delay=delay)


def after_refusals(error: ProviderError, seconds: float, *, fallback: str | None) -> ApplicationError:
    """No more waiting: the provider has accepted nobody's call for so many seconds."""
    error.message = f"{error.message} (it has accepted no call for {timedelta(seconds=round(seconds))})"
    return final_error(error, fallback=fallback)
