"""`gen_ai.evaluation.result`: OpenTelemetry's event for the result of judging an answer, as its semantic conventions
for generative AI have it (semantic-conventions-genai, model/gen-ai/events.yaml, 2026-11): a log record at the span of
what is judged. Imported only by a worker that traces."""

from __future__ import annotations

import os
from collections.abc import Iterator

from opentelemetry import _logs as api
from opentelemetry._logs import LoggerProvider, SeverityNumber
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource

from everturn.evaluations.records import EvaluationRequest, EvaluationResult, Judgement
from everturn.names import unversioned
from everturn.worker.span_attributes import Attributes

EVENT = "gen_ai.evaluation.result"


class OtelEvents:
    """`content`: reasons are said, too. They may quote what is judged."""

    def __init__(self, provider: LoggerProvider, *, content: bool) -> None:
        self._provider = provider
        self._logger = provider.get_logger("everturn")
        self._content = content

    def emit_results(self, request: EvaluationRequest, judgement: Judgement, span: Context) -> None:
        severity = SeverityNumber.WARN if judgement.error else SeverityNumber.INFO
        for attributes in self._attributes_of(request, judgement):
            body = f"evaluation {attributes['gen_ai.evaluation.name']}"
            self._logger.emit(
                event_name=EVENT, body=body, attributes=attributes, context=span, severity_number=severity
            )

    def _attributes_of(self, request: EvaluationRequest, judgement: Judgement) -> Iterator[Attributes]:
        about = about_evaluation(request)
        if judgement.error:
            yield {**about, "gen_ai.evaluation.name": request.evaluator, "error.type": judgement.error}
        for result in judgement.results:
            yield {**about, **self._of_result(result)}

    def _of_result(self, result: EvaluationResult) -> Attributes:
        attributes: Attributes = {"gen_ai.evaluation.name": result.name}
        if result.score is not None:
            attributes["gen_ai.evaluation.score.value"] = result.score
        if result.label:
            attributes["gen_ai.evaluation.score.label"] = result.label
        if result.reason and self._content:
            attributes["gen_ai.evaluation.explanation"] = result.reason
        return attributes

    def flush_events(self) -> None:
        if flush := getattr(self._provider, "force_flush", None):
            flush()


def about_evaluation(request: EvaluationRequest) -> Attributes:
    """What the conventions have no word for, and whose answer it was."""
    attributes: Attributes = {
        "gen_ai.conversation.id": request.conversation_id,
        "gen_ai.agent.name": unversioned(request.agent),
        "everturn.turn": request.turn,
        "everturn.evaluator": request.evaluator,
    }
    if version := request.agent.partition("@")[2]:
        attributes["gen_ai.agent.version"] = version
    if request.version:
        attributes["everturn.evaluator.version"] = request.version
    return attributes


def logger_provider(*, resource: Resource | None) -> LoggerProvider:
    """The program's own. If it has none, and everturn had to make a tracer provider, too: a new one that exports by
    OTLP over HTTP. `resource`: the one of that tracer provider; None: everturn made none."""
    if resource is None or os.environ.get("OTEL_LOGS_EXPORTER") == "none":
        return api.get_logger_provider()
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
    from opentelemetry.sdk._logs import LoggerProvider as SdkLoggerProvider
    from opentelemetry.sdk._logs.export import BatchLogRecordProcessor

    provider = SdkLoggerProvider(resource)
    provider.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter()))
    api.set_logger_provider(provider)
    return api.get_logger_provider()  # the program's own, if it has set one
