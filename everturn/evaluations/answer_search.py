"""Finds the answers that were given since the last look, by Temporal's index, and starts the evaluations of those that
are sampled. No conversation hears of it."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from temporalio import activity
from temporalio.client import WorkflowExecution
from temporalio.common import (
    SearchAttributeKey,
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDReusePolicy,
)
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError

from everturn import names
from everturn.errors import ConversationError, InvalidSetting
from everturn.evaluations.online_evaluators import OnlineEvaluator
from everturn.evaluations.records import EvaluationRequest, LookRequest, LookResult
from everturn.evaluations.sampling import (
    HOUR_SECONDS,
    evaluation_id,
    evaluations_queue,
    may_be_sampled,
    sample_number,
)
from everturn.heartbeats.beats_outside_conversations import keep_beating
from everturn.history.answers import FoundAnswer, find_answers
from everturn.logs import get_logger
from everturn.temporal.any_status import OPEN_QUERY, is_over
from everturn.temporal.filter_values import quoted, quoted_time
from everturn.temporal.ids import keyword
from everturn.temporal.namespace import Namespace
from everturn.temporal.task_timeout import TASK_TIMEOUT
from everturn.temporal.temporal_errors import not_found

WINDOW_SECONDS: Final = HOUR_SECONDS
"""The most time that a look goes through. After a longer absence, looks follow each other at once."""

OVERLAP_SECONDS: Final = 60.0
"""How much of the time of the look before is looked through again: the index may show things so late."""

BEAT_SECONDS: Final = 3.0

READS_AT_ONCE: Final = 8
MOST_READ: Final = 20_000
"""Conversations of which is known what the index said when they were read."""

_STATUS: Final = SearchAttributeKey.for_keyword(names.EVERTURN_STATUS)
_TOKENS: Final = SearchAttributeKey.for_int(names.EVERTURN_TOKENS)
_AGENT: Final = SearchAttributeKey.for_keyword(names.EVERTURN_AGENT)
_EVALUATOR: Final = SearchAttributeKey.for_keyword(names.EVERTURN_EVALUATOR)

_log = get_logger("everturn.evaluations")


@dataclass(frozen=True)
class LookPace:
    """How often somebody looks and judges, in seconds: what suits the server's price."""

    pause: float = 10.0
    """Between two looks."""
    silence: float = 15.0
    """After which a worker that judges counts as lost."""


THRIFTY: Final = LookPace(pause=60.0, silence=60.0)


class AnswerSearch:
    """`evaluators`: by name, each with its rate. `task_queue`: the conversations'."""

    def __init__(
        self,
        evaluators: Mapping[str, OnlineEvaluator],
        *,
        task_queue: str,
        namespace: Namespace,
        pace: LookPace,
    ) -> None:
        self._evaluators = evaluators
        self._rate = max((evaluator.sample or 0.0 for evaluator in evaluators.values()), default=0.0)
        self._task_queue = task_queue
        self._namespace = namespace
        self._pace = pace
        self._read: OrderedDict[str, Any] = OrderedDict()
        """What the index said of a conversation when it was read: if it says the same, there is nothing new."""

    @activity.defn(name=names.LOOK_FOR_ANSWERS)
    async def look_for_answers(self, look: LookRequest) -> LookResult:
        """Safe to repeat: an evaluation that is there already is not started again."""
        async with keep_beating(BEAT_SECONDS):
            return await self._look_once(look)

    async def _look_once(self, look: LookRequest) -> LookResult:
        now = activity.info().started_time.timestamp()
        until = min(now, look.since + WINDOW_SECONDS)
        since = look.since - OVERLAP_SECONDS
        slots = asyncio.Semaphore(READS_AT_ONCE)
        earliest = max(look.first, since - HOUR_SECONDS)

        async def judge_row(row: WorkflowExecution) -> int:
            async with slots:
                return await self._start_evaluations(row, earliest=earliest)

        sampled = [row async for row in self._sampled_rows(since, until)]
        started = sum(await asyncio.gather(*map(judge_row, sampled)))
        if started:
            _log.info("evaluations.started", count=started)
        return LookResult(until=until, pause=self._pace.pause if until == now else 0.0, started=started)

    async def _sampled_rows(self, since: float, until: float) -> AsyncIterator[WorkflowExecution]:
        """Conversations that may have answered in this time, and whose answers would be judged."""
        client = activity.client()
        for query in await self._queries(since, until):
            async for row in client.list_workflows(query):
                if not may_be_sampled(row.id, since, until, self._rate) or row.id.startswith(names.RERUN):
                    continue
                if self._read.get(row.id) != _state_in_index(row):
                    yield row

    async def _queries(self, since: float, until: float) -> list[str]:
        """Of those that are over, and of those that may answer again. Without everturn's search attributes, the index
        does not say whether the latter have answered: they are judged once they are over."""
        own_query = (
            f"WorkflowType = '{names.CONVERSATION}' AND TaskQueue = {quoted(self._task_queue)} "
            f"AND WorkflowId NOT STARTS_WITH '{names.RERUN}'"
        )
        over = (
            f"{own_query} AND ExecutionStatus != 'ContinuedAsNew' AND CloseTime >= {quoted_time(_moment(since))} "
            f"AND CloseTime < {quoted_time(_moment(until + OVERLAP_SECONDS))}"
        )
        if not await self._namespace.indexed():
            return [over]
        return [f"{own_query} AND {OPEN_QUERY} AND {names.EVERTURN_STATUS} IS NOT NULL", over]

    async def _start_evaluations(self, row: WorkflowExecution, *, earliest: float) -> int:
        """Returns how many were started."""
        try:
            answers = await find_answers(activity.client(), row.id, row.run_id, since=_moment(earliest))
        except (ConversationError, InvalidSetting) as error:
            _log.warning("evaluations.unreadable", conversation=row.id, error=str(error))
            return 0
        except RPCError as error:
            if not not_found(error):
                raise
            return 0  # it was erased since
        started = [
            await self._start_evaluation(row.id, answer, evaluator)
            for answer in answers
            for evaluator in self._evaluators.values()
            if _is_judged_by(evaluator, row.id, answer)
        ]
        self._remember(row)
        return sum(started)

    def _remember(self, row: WorkflowExecution) -> None:
        if not (is_over(row) or _tokens_of(row)):
            return  # nothing in the index would say that it has answered again
        self._read[row.id] = _state_in_index(row)
        self._read.move_to_end(row.id)
        if len(self._read) > MOST_READ:
            self._read.popitem(last=False)

    async def _start_evaluation(self, conversation_id: str, answer: FoundAnswer, evaluator: OnlineEvaluator) -> bool:
        """False if it was started before."""
        answered_at = answer.given_at.timestamp()
        request = EvaluationRequest(
            conversation_id=conversation_id,
            run_id=answer.run_id,
            turn=answer.turn,
            answered_at=answered_at,
            agent=answer.agent,
            evaluator=evaluator.name,
            version=evaluator.version,
            timeout=evaluator.timeout.total_seconds(),
            silence=self._pace.silence,
            indexed=await self._namespace.evaluations_searchable(),
            minimal=answer.minimal,
        )
        try:
            await activity.client().start_workflow(
                names.EVALUATION,
                request.model_dump(mode="json"),
                id=evaluation_id(conversation_id, answer.turn, answered_at, evaluator.name),
                task_queue=evaluations_queue(self._task_queue),
                task_timeout=TASK_TIMEOUT,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                search_attributes=_first_attributes(request),
            )
        except WorkflowAlreadyStartedError:
            return False
        return True


def _is_judged_by(evaluator: OnlineEvaluator, conversation_id: str, answer: FoundAnswer) -> bool:
    number = sample_number(conversation_id, answer.given_at.timestamp())
    return number < (evaluator.sample or 0.0) and evaluator.judges_agent(answer.agent, is_question=answer.answers_call)


def _state_in_index(row: WorkflowExecution) -> tuple[Any, ...]:
    attributes = row.typed_search_attributes
    return row.run_id, row.raw_info.status, attributes.get(_STATUS), _tokens_of(row)


def _tokens_of(row: WorkflowExecution) -> int:
    return row.typed_search_attributes.get(_TOKENS) or 0


def _first_attributes(request: EvaluationRequest) -> TypedSearchAttributes:
    if not request.indexed:
        return TypedSearchAttributes.empty
    pairs: list[SearchAttributePair[Any]] = [SearchAttributePair(_EVALUATOR, request.evaluator)]
    if not request.minimal:
        pairs.append(SearchAttributePair(_AGENT, keyword(request.agent)))
    return TypedSearchAttributes(pairs)


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, tz=UTC)
