"""What evaluators said about answers, as Temporal's index has it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from temporalio.client import Client, WorkflowExecution
from temporalio.service import RPCError

from everturn import names
from everturn.client.client_base import ClientBase
from everturn.errors import InvalidSetting
from everturn.evaluations.records import EvaluationMemo, EvaluationResult, lowest_score
from everturn.evaluations.sampling import evaluations_prefix, is_evaluation_of
from everturn.names import unversioned
from everturn.records import Usage, cost_with
from everturn.temporal.filter_values import quoted, quoted_time
from everturn.validation.spelling import known_options


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What one evaluator said about one answer."""

    id: str
    """Of the workflow that judged it."""
    conversation_id: str
    turn: int
    """The turn of the answer's final reply."""
    agent: str
    """Who gave the answer; with its version, if it has one: `clerk@2`."""
    evaluator: str
    version: str
    """The evaluator's; empty if it has none."""
    results: tuple[EvaluationResult, ...]
    """Empty if it failed, and if it had nothing to say."""
    error: str
    """The type of the error that kept it from judging; empty if it judged."""
    error_text: str
    usage: Usage
    """What judging took. The conversation's own usage and cost do not have it."""
    cost_usd: float | None
    """The same in US dollars; None if a price is not known."""
    answered_at: datetime
    judged_at: datetime

    @property
    def score(self) -> float | None:
        """The lowest one of its results; None if none has a score."""
        return lowest_score(self.results)

    def as_json(self) -> dict[str, Any]:
        return {
            **vars(self),
            "results": [result.model_dump(mode="json") for result in self.results],
            "usage": self.usage.model_dump(mode="json"),
            "answered_at": self.answered_at.isoformat(),
            "judged_at": self.judged_at.isoformat(),
        }


@dataclass(frozen=True, kw_only=True)
class EvaluationMean:
    """What one evaluator said about the answers of one version of an agent."""

    evaluator: str
    """With the result's name, if the evaluator judges several things: `judge/tone`."""
    version: str
    """The evaluator's."""
    agent: str
    """With its version."""
    judged: int
    failed: int
    mean: float | None
    """Of the scores; None if there are none."""
    labels: Mapping[str, int]
    """How often it gave each label."""
    cost_usd: float | None
    """Of all these evaluations; None if a price is not known."""


def means_of(evaluations: Iterable[Evaluation]) -> list[EvaluationMean]:
    """By evaluator and agent, each in all its versions."""
    groups: dict[tuple[str, str, str], list[tuple[Evaluation, EvaluationResult | None]]] = {}
    for evaluation in evaluations:
        for result in evaluation.results or (None,):
            name = evaluation.evaluator
            if result and result.name != name:
                name = f"{name}/{result.name}"
            groups.setdefault((name, evaluation.version, evaluation.agent), []).append((evaluation, result))
    return [_mean_of(*key, group) for key, group in sorted(groups.items())]


def _mean_of(
    evaluator: str, version: str, agent: str, group: list[tuple[Evaluation, EvaluationResult | None]]
) -> EvaluationMean:
    results = [result for _, result in group if result]
    scores = [result.score for result in results if result.score is not None]
    cost: float | None = 0.0
    for evaluation, _ in group:
        cost = cost_with(cost, evaluation.cost_usd)
    return EvaluationMean(
        evaluator=evaluator,
        version=version,
        agent=agent,
        judged=len(results),
        failed=sum(bool(evaluation.error) for evaluation, _ in group),
        mean=sum(scores) / len(scores) if scores else None,
        labels=Counter(result.label for result in results if result.label),
        cost_usd=cost,
    )


class EvaluationsClient(ClientBase):
    """The part of a client that lists evaluations."""

    @known_options("Client.evaluations", InvalidSetting)
    async def evaluations(
        self,
        *,
        evaluator: str | None = None,
        agent: str | None = None,
        conversation_id: str | None = None,
        below: float | None = None,
        failed: bool | None = None,
        judged_after: datetime | None = None,
    ) -> AsyncIterator[Evaluation]:
        """The answers that the workers' evaluators have judged, the latest first. `agent`: without a version, of all
        its versions. `below`: only those with a lower score. `failed`: True: only those whose evaluator failed; False:
        only the others. The index lags by a second or so. The namespace keeps evaluations as long as conversations
        that are over. Raises InvalidSetting and Unreachable."""
        if below is not None and not math.isfinite(below):
            raise InvalidSetting(f"below={below} is no score.", cure="Give a number, such as 0.5.")
        indexed = await self.namespace.evaluations_searchable()
        query = _build_query(conversation_id, judged_after)
        if indexed:
            query = _build_query(conversation_id, judged_after, evaluator=evaluator, agent=agent, below_score=below)
        try:
            async for row in self.temporal.list_workflows(query):
                evaluation = await _read_row(row)
                if evaluation and _matches_filters(evaluation, conversation_id, evaluator, agent, below, failed):
                    yield evaluation
        except RPCError as error:
            raise self.unreachable_error(error) from error


def _build_query(
    conversation_id: str | None,
    judged_after: datetime | None,
    *,
    evaluator: str | None = None,
    agent: str | None = None,
    below_score: float | None = None,
) -> str:
    wanted = [f"WorkflowType = '{names.EVALUATION}'", "ExecutionStatus = 'Completed'"]
    if conversation_id is not None:
        wanted.append(f"WorkflowId STARTS_WITH {quoted(evaluations_prefix(conversation_id))}")
    if judged_after is not None:
        wanted.append(f"CloseTime >= {quoted_time(judged_after)}")
    if evaluator is not None:
        wanted.append(f"{names.EVERTURN_EVALUATOR} = {quoted(evaluator)}")
    if agent is not None:
        versions = f" OR {names.EVERTURN_AGENT} STARTS_WITH {quoted(agent + '@')}"
        wanted.append(f"({names.EVERTURN_AGENT} = {quoted(agent)}{'' if '@' in agent else versions})")
    if below_score is not None:
        wanted.append(f"{names.EVERTURN_SCORE} < {below_score}")
    return " AND ".join(wanted)


def _matches_filters(
    evaluation: Evaluation,
    conversation_id: str | None,
    evaluator: str | None,
    agent: str | None,
    below_score: float | None,
    failed: bool | None,
) -> bool:
    """The index may have less than is asked for: ids that begin alike, and namespaces without search attributes."""
    return (
        conversation_id in (None, evaluation.conversation_id)
        and evaluator in (None, evaluation.evaluator)
        and agent in (None, evaluation.agent, unversioned(evaluation.agent))
        and (below_score is None or (evaluation.score is not None and evaluation.score < below_score))
        and failed in (None, bool(evaluation.error))
    )


async def _read_row(row: WorkflowExecution) -> Evaluation | None:
    """None if its memo can't be read here."""
    try:
        memo = EvaluationMemo.model_validate((await row.memo()).get(names.EVALUATED))
    except Exception:  # noqa: BLE001 - codecs raise all kinds: who lacks the key sees the rest
        return None
    judgement = memo.judgement
    return Evaluation(
        id=row.id,
        conversation_id=memo.conversation_id,
        turn=memo.turn,
        agent=memo.agent,
        evaluator=memo.evaluator,
        version=memo.version,
        results=judgement.results,
        error=judgement.error,
        error_text=judgement.error_text,
        usage=judgement.usage,
        cost_usd=judgement.cost_usd,
        answered_at=datetime.fromtimestamp(memo.answered_at, tz=UTC),
        judged_at=row.close_time or row.start_time,
    )


async def evaluation_rows(temporal: Client, conversation_id: str) -> list[WorkflowExecution]:
    """The evaluations of a conversation, those that run, too. Raises RPCError."""
    query = (
        f"WorkflowType = '{names.EVALUATION}' AND WorkflowId STARTS_WITH {quoted(evaluations_prefix(conversation_id))}"
    )
    return [row async for row in temporal.list_workflows(query) if is_evaluation_of(row.id, conversation_id)]
