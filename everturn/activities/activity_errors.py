"""How a failed activity tells Temporal what to do: try again and when, or give up and why."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError, FailureError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from everturn import names
from everturn.activities.patience import effort_text, spend
from everturn.activities.retry_delays import LONGEST_OWN_DELAY_SECONDS
from everturn.activities.user_activities import is_users_call, is_users_own
from everturn.calls.activity_outputs import TOOL_FAILED
from everturn.errors import EverturnError
from everturn.sizes import MAX_CAUSE_BYTES
from everturn.text.shortening import shortened
from everturn.tools.results import safe_error_text, safe_text
from everturn.tools.unwritten_results import UnwrittenResult, after_effect
from everturn.tools.user_code import class_name
from everturn.webhooks.records import WebhookFacts


def final_error(error: EverturnError, *, fallback: str | None = None, too_long: bool = False) -> ApplicationError:
    """No retry: the conversation goes on with the `fallback` model, or shows the model less if it was `too_long`;
    without either it stalls with this cause and cure."""
    details: dict[str, Any] = {"cure": error.cure}
    if too_long:
        details["too_long"] = True
    elif fallback:
        details["fallback"] = fallback
    return ApplicationError(error.message, details, type=type(error).__name__, non_retryable=True)


def after_reply(error_text: str) -> ApplicationError:
    """No retry, which would be paid for again: the conversation stalls."""
    return ApplicationError(
        f"The model replied, but its reply could not be planned: {error_text}",
        {"cure": "This is a bug in everturn: please report it. `resume` asks the model again."},
        type=names.REPLY_NOT_PLANNED,
        non_retryable=True,
    )


def not_asked(error_text: str, *, fallback: str | None) -> ApplicationError:
    """No retry, which would fail in the same way, without an end and unseen."""
    cause = f"The model could not be asked: {error_text}"
    cure = "This is a bug in everturn: please report it. `resume` tries again, also with another model."
    details = {"cure": cure}
    if fallback:
        details["fallback"] = fallback
    return ApplicationError(cause, details, type=names.MODEL_NOT_ASKED, non_retryable=True)


async def of_unexpected(error: Exception, *, patience: timedelta | None = None) -> ApplicationError:
    """What the SDK makes of an error that nobody foresaw, such as a server that does not answer, with more time between
    the tries than there is after a lost worker. `patience`: when it is spent, there are no more tries."""
    attempt = activity.info().attempt
    error_text = shortened(await safe_text(error), max_bytes=MAX_CAUSE_BYTES)
    delay = timedelta(seconds=min(0.2 * 2 ** min(attempt - 1, 16), LONGEST_OWN_DELAY_SECONDS))
    kind = class_name(error)
    if patience is None or spend(delay, patience):
        failure = ApplicationError(error_text, type=kind, next_retry_delay=delay)
    else:
        error_text = f"{error_text} ({effort_text()})"
        details = {"cure": "The log of the worker says more. Then `resume`."}
        failure = ApplicationError(error_text, details, type=kind, non_retryable=True)
    return failure.with_traceback(error.__traceback__)


@asynccontextmanager
async def retrying_for(longest: timedelta) -> AsyncIterator[None]:
    """An error in the block that nobody foresaw is retried for so long, and is final then."""
    try:
        yield
    except FailureError:
        raise  # it says itself when to try again
    except Exception as error:  # noqa: BLE001 - nobody foresaw it
        raise await of_unexpected(error, patience=longest) from None


class UnexpectedErrors(Interceptor):
    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002
        return _Activity(next)


class _Activity(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002
        info = activity.info()
        try:
            value = await self.next.execute_activity(input)
            if is_users_call(info):
                await _check_written(value)
            return value
        except FailureError:
            raise  # it says itself when to try again
        except Exception as error:
            if info.is_local or is_users_own(info):
                raise
            raise await of_unexpected(error) from None


async def _check_written(value: Any) -> None:
    """Raises ApplicationError for what a user's activity returned if Temporal's worker can't write it. It would fail
    the activity with that, as if nothing had run."""
    try:
        with after_effect():
            activity.payload_converter().to_payloads([value])
    except UnwrittenResult as problem:
        raise ApplicationError(await safe_error_text(problem), type=TOOL_FAILED, non_retryable=True) from None


def say_webhook(error: ApplicationError, webhook: WebhookFacts | None) -> None:
    """Has a turn that is not tried again say what the agent's webhook is to be sent: before the first reply, the
    conversation does not know."""
    if webhook and error.non_retryable and error.details and isinstance(error.details[0], dict):
        error.details[0]["webhook"] = webhook.model_dump(mode="json")


def worker_shutdown() -> ApplicationError:
    """This worker shuts down: another takes over at once."""
    return ApplicationError(
        "The worker shut down.", type=names.WORKER_SHUTDOWN, next_retry_delay=timedelta(milliseconds=1)
    )
