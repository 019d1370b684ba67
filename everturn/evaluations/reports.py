"""What is reported of judged answers: metrics, and OpenTelemetry's `gen_ai.evaluation.result`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from temporalio.common import MetricMeter

from everturn.evaluations.answers import JudgedAnswer
from everturn.evaluations.records import EvaluationRequest, Judgement
from everturn.worker.trace_activities import TraceActivities

SCORE_METRIC: Final = "everturn_evaluation_score"
SCORE_BUCKETS: Final = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]


class EvaluationReports:
    """`meter`: of Temporal's runtime, if it shows its metrics."""

    def __init__(self, meter: MetricMeter | None, traces: TraceActivities | None) -> None:
        self._metrics = EvaluationMetrics(meter) if meter else None
        self._traces = traces

    @contextmanager
    def observe_judgement(
        self, request: EvaluationRequest, answer: JudgedAnswer
    ) -> Iterator[Callable[[Judgement], None]]:
        """Around one try of a judgement."""
        if self._traces is None:
            yield lambda judgement: self._count_evaluation(request, judgement)
            return
        with self._traces.evaluation_span(request, answer) as record:

            def report_judgement(judgement: Judgement) -> None:
                record(judgement)
                self._count_evaluation(request, judgement)

            yield report_judgement

    def _count_evaluation(self, request: EvaluationRequest, judgement: Judgement) -> None:
        if self._metrics:
            self._metrics.count_evaluation(request, judgement)


class EvaluationMetrics:
    """everturn_evaluations_total, everturn_evaluation_score and everturn_evaluation_tokens_total, by evaluator and
    agent."""

    def __init__(self, meter: MetricMeter) -> None:
        self._evaluations = meter.create_counter("everturn_evaluations", "Answers that were judged.")
        self._scores = meter.create_histogram_float(SCORE_METRIC, "What evaluators said of answers.")
        self._tokens = meter.create_counter("everturn_evaluation_tokens", "Tokens of models that judged answers.")

    def count_evaluation(self, request: EvaluationRequest, judgement: Judgement) -> None:
        labels = {"evaluator": request.evaluator, "agent": request.agent}
        outcome = "failed" if judgement.error else "judged"
        self._evaluations.add(1, {**labels, "outcome": outcome})
        self._tokens.add(judgement.usage.total_tokens, labels)
        for result in judgement.results:
            if result.score is not None:
                self._scores.record(result.score, {**labels, "result": result.name})
