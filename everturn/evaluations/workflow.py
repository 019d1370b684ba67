"""One evaluator's judgement of one answer. Its id says which, so there is one, whatever is killed and asked again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from temporalio import workflow
from temporalio.common import RetryPolicy, SearchAttributeKey, SearchAttributeUpdate
from temporalio.exceptions import ActivityError, ApplicationError

from everturn import names
from everturn.evaluations.records import EvaluationMemo, EvaluationRequest, Judgement
from everturn.temporal.ids import keyword
from everturn.workflows import message_dispatch

STATUS: Final = SearchAttributeKey.for_keyword(names.EVERTURN_STATUS)
SCORE: Final = SearchAttributeKey.for_float(names.EVERTURN_SCORE)
LABEL: Final = SearchAttributeKey.for_keyword(names.EVERTURN_LABEL)
COST_USD: Final = SearchAttributeKey.for_float(names.EVERTURN_COST_USD)

MOST_LOST: Final = 10
"""So many workers may be lost, one after the other, while they judge the same answer."""

CLEAN_UP: Final = timedelta(seconds=30)
"""How long a try may take beside its evaluator: to read the history, and to end."""

FIRST_WAIT: Final = timedelta(seconds=5)
LONGEST_WAIT: Final = timedelta(minutes=5)
PATIENCE: Final = timedelta(hours=1)
"""For a worker that has the evaluator, and its judge's key, once others have said that they lack it."""


# The sandbox guards user code from itself, and there is none in this workflow: test_determinism.py.
@workflow.defn(name=names.EVALUATION, sandboxed=False)
class EvaluationWorkflow:
    @workflow.run
    async def run(self, *inputs: Any) -> dict[str, Any]:
        request = message_dispatch.require_input(EvaluationRequest, inputs, otherwise="This can't be judged")
        judgement = await _judge_patiently(request)
        if request.indexed:
            workflow.upsert_search_attributes(_attributes_of(judgement, minimal=request.minimal))
        if judgement.version is not None:
            request = request.model_copy(update={"version": judgement.version})
        memo = EvaluationMemo(**request.model_dump(), judgement=judgement).model_dump(mode="json")
        workflow.upsert_memo({names.EVALUATED: memo})
        return memo


async def _judge_patiently(request: EvaluationRequest) -> Judgement:
    """The judgement, once a worker has it that has the evaluator."""
    wait = FIRST_WAIT
    until = workflow.now() + PATIENCE
    while True:
        try:
            return await _judge_once(request)
        except ActivityError as error:
            kind = _kind_of(error)
            if kind != names.NOT_HOSTED or workflow.now() >= until:
                return Judgement(error=kind, error_text=str(error.cause or error)[:500])
        await workflow.sleep(wait, summary=f"until a worker has the evaluator {request.evaluator}")
        wait = min(2 * wait, LONGEST_WAIT)


async def _judge_once(request: EvaluationRequest) -> Judgement:
    judgement: Judgement = await workflow.execute_activity(
        names.JUDGE_ANSWER,
        request,
        result_type=Judgement,
        start_to_close_timeout=timedelta(seconds=request.timeout) + CLEAN_UP,
        heartbeat_timeout=timedelta(seconds=request.silence),
        retry_policy=RetryPolicy(initial_interval=timedelta(seconds=1), maximum_attempts=MOST_LOST),
        summary=request.evaluator,
    )
    return judgement


def _kind_of(error: ActivityError) -> str:
    """The type of the error that the activity ended with; WorkerLost for a timeout."""
    if isinstance(error.cause, ApplicationError):
        return error.cause.type or names.REFUSED
    return names.WORKER_LOST


def _attributes_of(judgement: Judgement, *, minimal: bool) -> list[SearchAttributeUpdate[Any]]:
    attributes: list[SearchAttributeUpdate[Any]] = [STATUS.value_set("failed" if judgement.error else "judged")]
    if judgement.lowest_score is not None:
        attributes.append(SCORE.value_set(judgement.lowest_score))
    if judgement.label and not minimal:
        attributes.append(LABEL.value_set(keyword(judgement.label)))
    if judgement.cost_usd is not None:
        attributes.append(COST_USD.value_set(judgement.cost_usd))
    return attributes
