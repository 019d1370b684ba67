"""The activity that has an evaluator judge an answer, within its time. Its errors are tried again, and then become
a judgement that says so; what its models cost is counted here, and not with the conversation."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import timedelta
from typing import Final

from pydantic import ValidationError
from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.service import RPCError

from everturn import names
from everturn.errors import ConversationError, KeyMissing, ProviderError
from everturn.evaluations.answers import JudgedAnswer
from everturn.evaluations.online_evaluators import InvalidResult, OnlineEvaluator, read_evaluated, results_of
from everturn.evaluations.records import EvaluationRequest, Judgement, SpentBefore
from everturn.evaluations.spending import EvaluatorSpending, counted_spending
from everturn.heartbeats.beats_outside_conversations import keep_beating
from everturn.history.answers import read_answer
from everturn.logs import get_logger
from everturn.records import Usage
from everturn.temporal.temporal_errors import not_found
from everturn.text.shortening import clipped
from everturn.text.utf8 import mend
from everturn.tools import user_code
from everturn.tools.results import error_text
from everturn.tools.user_code import TookTooLong, class_name

Observe = Callable[[EvaluationRequest, JudgedAnswer], AbstractContextManager[Callable[[Judgement], None]]]
"""Opens what surrounds a judgement, such as a span; what it gives is called with what came of it."""

MOST_TRIES_OF_EVALUATORS: Final = 3
MOST_TRIES_OF_PROVIDERS: Final = 8
"""If a provider says that it may work later: some minutes in all."""

FIRST_DELAY_SECONDS: Final = 2.0
LONGEST_DELAY_SECONDS: Final = 120.0

BEATS: Final = 4
"""In the time after which a silent worker counts as lost."""

MAX_ERROR_CHARS: Final = 500

GONE: Final = "ConversationGone"
"""The error type of the judgement of an answer whose history is deleted."""

_log = get_logger("everturn.evaluations")


class JudgeActivities:
    """`evaluators`: by name."""

    def __init__(self, evaluators: Mapping[str, OnlineEvaluator], observe: Observe) -> None:
        self._evaluators = evaluators
        self._observe = observe

    @activity.defn(name=names.JUDGE_ANSWER)
    async def judge_answer(self, request: EvaluationRequest) -> Judgement:
        evaluator = self._evaluators.get(request.evaluator)
        if evaluator is None:
            raise _not_here(f"No worker has the evaluator {request.evaluator!r}.")
        request = request.model_copy(update={"version": evaluator.version})
        # A deploy may have given it more time since, but Temporal ends this try when it was said.
        evaluator = replace(evaluator, timeout=min(evaluator.timeout, timedelta(seconds=request.timeout)))
        async with keep_beating(request.silence / BEATS):
            try:
                answer = await read_answer(activity.client(), request.conversation_id, request.run_id, request.turn)
            except ConversationError as error:
                return Judgement(error=GONE, error_text=str(error))
            except RPCError as error:
                if not not_found(error):
                    raise
                return Judgement(error=GONE, error_text="The conversation's history is deleted.")
            with self._observe(request, answer) as record:
                judgement = await _judge_answer(evaluator, answer)
                record(judgement)
        return judgement


async def _judge_answer(evaluator: OnlineEvaluator, answer: JudgedAnswer) -> Judgement:
    """What the evaluator says. Raises ApplicationError if it is to be tried again."""
    began = time.monotonic()
    with counted_spending() as spending:
        _take_earlier(spending)
        try:
            returned = await user_code.call(
                evaluator.call_of(answer), seconds=evaluator.timeout.total_seconds(), name=evaluator.name
            )
            evaluated = read_evaluated(evaluator.name, returned)
            judged = Judgement(results=results_of(evaluated))
            for value in evaluated.values():
                if value.usage or value.cost_usd != 0:
                    spending.add_usage(value.usage or Usage(), value.cost_usd)
        except KeyMissing as error:
            _log.warning("evaluator.key_missing", evaluator=evaluator.name, variables=error.variables)
            raise _not_here(f"{error.message} {error.cure}") from None
        except Exception as error:  # noqa: BLE001 - a user's own: it is what the judgement says
            judged = _failed_judgement(evaluator, error)
            if _is_tried_again(error):
                _leave_spending(spending)
                raise _to_try_again(judged, error) from None
    seconds = round(time.monotonic() - began, 3)
    spent = {"usage": spending.usage, "cost_usd": spending.cost_usd, "seconds": seconds}
    return judged.model_copy(update={**spent, "version": evaluator.version})


def _not_here(cause: str) -> ApplicationError:
    """The error of what another worker may have, or this one once it is set up: the evaluation waits for it."""
    return ApplicationError(cause, type=names.NOT_HOSTED, non_retryable=True, category=ApplicationErrorCategory.BENIGN)


def _leave_spending(spending: EvaluatorSpending) -> None:
    """For the next try."""
    spent = SpentBefore(usage=spending.usage, cost_usd=spending.cost_usd)
    activity.heartbeat(spent.model_dump(mode="json"))


def _take_earlier(spending: EvaluatorSpending) -> None:
    """What earlier tries have spent: they left it in the last heartbeat."""
    for details in activity.info().heartbeat_details[:1]:
        try:
            spent = SpentBefore.model_validate(details)
        except ValidationError:
            continue
        spending.add_usage(spent.usage, spent.cost_usd)


def _failed_judgement(evaluator: OnlineEvaluator, error: Exception) -> Judgement:
    text = error_text(error)
    if isinstance(error, TookTooLong):
        text = f"it did not end within {evaluator.timeout.total_seconds():g} s"
    if isinstance(error, InvalidResult):
        text = str(error)
    _log.warning("evaluator.failed", evaluator=evaluator.name, error=class_name(error), attempt=activity.info().attempt)
    return Judgement(error=class_name(error), error_text=clipped(mend(text), MAX_ERROR_CHARS))


def _is_tried_again(error: Exception) -> bool:
    if isinstance(error, InvalidResult):
        return False
    tries = MOST_TRIES_OF_EVALUATORS
    if isinstance(error, ProviderError):
        tries = MOST_TRIES_OF_PROVIDERS if error.retry else 1
    return activity.info().attempt < tries


def _to_try_again(judged: Judgement, error: Exception) -> ApplicationError:
    delay = min(FIRST_DELAY_SECONDS * 2 ** (activity.info().attempt - 1), LONGEST_DELAY_SECONDS)
    if isinstance(error, ProviderError) and error.retry_after:
        delay = min(max(delay, error.retry_after), LONGEST_DELAY_SECONDS)
    return ApplicationError(
        judged.error_text,
        type=judged.error,
        next_retry_delay=timedelta(seconds=delay),
        category=ApplicationErrorCategory.BENIGN,  # our own line says it, and no traceback
    )
