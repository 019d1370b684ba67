"""Spans and OpenTelemetry's metrics, and where they go. Imported only by a worker that traces: this needs
OpenTelemetry's SDK."""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

from opentelemetry import metrics
from opentelemetry import trace as api
from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import Tracer, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState
from temporalio import activity

from everturn.activities.prefix_cache import PrefixCache
from everturn.agent import Agent
from everturn.errors import InvalidSetting
from everturn.evaluations.answers import JudgedAnswer
from everturn.evaluations.records import EvaluationRequest, Judgement
from everturn.payloads import ModelReply, ModelRequest, ToolRequest
from everturn.records import Message, ToolResult
from everturn.tracing import AnswerSpan, ExportSpans, Trace, TraceContext, WaitSpan
from everturn.worker import span_attributes as attributes
from everturn.worker.gen_ai_metrics import BUCKETS, DURATION, TOKENS, Operation, error_type
from everturn.worker.otel_events import OtelEvents, about_evaluation, logger_provider
from everturn.worker.span_exports import SpanExports
from everturn.worker.traces import Traces

MOST_WRAPPERS = 4
"""Around the SDK's tracer: programs that trace by two libraries have two."""

SCHEMA_URL = "https://opentelemetry.io/schemas/1.41.0"


class Spans:
    """Makes and exports one worker's spans. Raises InvalidSetting for a provider that can't be used."""

    def __init__(self, traces: Traces, agents: Mapping[str, Agent], prefixes: PrefixCache) -> None:
        self._agents = agents
        self._prefixes = prefixes
        self._content = traces.content
        self._provider, own_provider = _find_provider(traces)
        self._tracer = _sdk_tracer(self._provider)
        self._exports = SpanExports(self._provider, within=traces.export_within.total_seconds())
        own_resource = own_provider.resource if own_provider else None
        self._meters = traces.meter_provider or _meter_provider(resource=own_resource)
        self.meter = OtelMeter(self._meters)
        self._given_loggers = traces.logger_provider
        self._own_resource = own_resource
        self._events: OtelEvents | None = None

    # ------------------------------------------------------------ activities

    def is_sampled(self, request: ModelRequest) -> bool:
        """Whether the sampler keeps the trace. The answer at hand has no span yet: it is decided as if it began now."""
        trace = request.trace
        if trace is None or trace.answer is None:
            return False
        sampled: bool = self._tracer.sampler.should_sample(
            _parent_context(trace.caller),
            int(trace.trace_id, 16),
            attributes.answer_name(request.agent),
            SpanKind.INTERNAL,
            self._of_agent(request.agent, request.model),
        ).decision.is_sampled()  # type: ignore[no-untyped-call]
        return sampled

    @contextmanager
    def without_sampling(self, trace: Trace) -> Iterator[None]:
        """What runs here is in the trace that the sampler drops, so that its own spans are dropped too."""
        context = trace.answer_context(0, sampled=False)
        with api.use_span(_remote_span(context)):
            yield

    @contextmanager
    def turn_span(self, request: ModelRequest) -> Iterator[ActivitySpan]:
        assert request.trace is not None
        assert request.trace.answer is not None
        parent = request.trace.answer_context(request.trace.answer.turn, sampled=True)
        agent = self._agents.get(request.agent)
        model = self._model_name(request.agent, request.model)
        values = attributes.of_turn(request, agent, model)
        if self._content:
            values |= attributes.input_content(request, agent)
        with self._current_span(attributes.turn_name(model), SpanKind.CLIENT, parent, values) as span:
            yield span

    @contextmanager
    def call_span(self, request: ToolRequest) -> Iterator[ActivitySpan]:
        assert request.trace is not None
        tool = request.tool or activity.info().activity_type
        values = attributes.of_call(request, tool)
        if self._content:
            values |= attributes.arguments_content(request)
        with self._current_span(attributes.call_name(tool), SpanKind.INTERNAL, request.trace, values) as span:
            yield span

    @contextmanager
    def evaluation_span(
        self, request: EvaluationRequest, answer: JudgedAnswer
    ) -> Iterator[Callable[[Judgement], None]]:
        """A span of one try of a judgement, below the answer's span; and the result's events, at the answer's span. If
        that was not traced, only the events."""
        if self._events is None:
            loggers = self._given_loggers or logger_provider(resource=self._own_resource)
            self._events = OtelEvents(loggers, content=self._content)
        events = self._events
        answered = _parent_context(answer.trace)
        span: api.Span = api.INVALID_SPAN
        if answer.trace:
            values = about_evaluation(request) | {"everturn.attempt": activity.info().attempt}
            span = self._tracer.start_span(f"evaluate {request.evaluator}", answered, SpanKind.INTERNAL, values)

        def record_judgement(judgement: Judgement) -> None:
            if judgement.error:
                span.set_attribute("error.type", judgement.error)
                span.set_status(Status(StatusCode.ERROR, judgement.error))
            if judgement.lowest_score is not None:
                span.set_attribute("gen_ai.evaluation.score.value", judgement.lowest_score)
            events.emit_results(request, judgement, answered)

        try:
            with api.use_span(span, record_exception=False, set_status_on_exception=False):
                yield record_judgement
        finally:
            span.end()

    @contextmanager
    def _current_span(
        self, name: str, kind: SpanKind, parent: TraceContext, values: attributes.Attributes
    ) -> Iterator[ActivitySpan]:
        """A span that what runs here is a part of. It ends when it is told how; if never, it is not exported."""
        values |= attributes.of_activity()
        span = self._tracer.start_span(name, _parent_context(parent), kind, values)
        with api.use_span(span, record_exception=False, set_status_on_exception=False):
            yield ActivitySpan(span, content=self._content)

    # ------------------------------------------------------------ what conversations hand over

    def export_handed(self, request: ModelRequest, reply: ModelReply) -> None:
        """What the conversation handed to this turn, and the answer, if the turn ends it."""
        assert request.trace is not None
        trace = request.trace
        answer = trace.answer
        self._export_past(trace, request.agent, request.model)
        if answer and reply.ends_answer and not request.summarise:
            cost = None if answer.cost_usd is None or reply.cost_usd is None else answer.cost_usd + reply.cost_usd
            whole = answer.model_copy(
                update={"until": time.time(), "usage": answer.usage + reply.usage, "cost_usd": cost}
            )
            content = attributes.answer_content(self._answered_messages(request), reply) if self._content else {}
            stop = attributes.finish_reason(reply)
            self._export_answer(trace, whole, request.agent, request.model, stop=stop, content=content)

    def _answered_messages(self, request: ModelRequest) -> Sequence[Message]:
        """The messages that the answer is for: the last ones of people, before what the answer itself has added."""
        prefix = self._prefixes.find(request.digest, request.position) or ()
        messages = [*prefix, *request.delta]
        end = len(messages)
        while end and messages[end - 1].role != "user":
            end -= 1
        begin = end
        while begin and messages[begin - 1].role == "user":
            begin -= 1
        return messages[begin:end]

    def export_rest(self, rest: ExportSpans) -> None:
        self._export_past(rest.trace, rest.agent, rest.model)

    def _export_past(self, trace: Trace, agent: str, model: str | None) -> None:
        for wait in trace.waits:
            self._export_wait(trace, wait, agent)
        for answer in trace.over:
            self._export_answer(trace, answer, agent, model)

    def _export_wait(self, trace: Trace, wait: WaitSpan, agent: str) -> None:
        parent = trace.answer_context(wait.answer, sampled=True) if wait.answer else trace.caller
        span = self._with_id(trace, trace.wait_span_id(wait)).start_span(
            attributes.wait_name(wait),
            _parent_context(parent),
            attributes=attributes.of_wait(wait, agent),
            start_time=_nanoseconds(wait.since),
        )
        if wait.error:
            span.set_status(Status(StatusCode.ERROR, wait.error))
        span.end(_nanoseconds(max(wait.since, wait.until)))

    def _export_answer(
        self,
        trace: Trace,
        answer: AnswerSpan,
        agent: str,
        model: str | None,
        *,
        stop: str = "",
        content: attributes.Attributes | None = None,
    ) -> None:
        place = trace.answer_context(answer.turn, sampled=True)
        span = self._with_id(trace, place.span_id).start_span(
            attributes.answer_name(agent),
            _parent_context(trace.caller),
            attributes=self._of_agent(agent, model) | attributes.of_answer(answer, stop) | (content or {}),
            links=[Link(_span_context(link)) for link in answer.links],
            start_time=_nanoseconds(answer.since),
        )
        if answer.status:
            span.set_status(Status(StatusCode.ERROR, answer.status))
        span.end(_nanoseconds(max(answer.since, answer.until or answer.since)))

    def _with_id(self, trace: Trace, span_id: str) -> Tracer:
        """A copy of the tracer that gives this id to the span that it starts."""
        tracer = copy.copy(self._tracer)
        tracer.id_generator = _GivenIds(int(trace.trace_id, 16), int(span_id, 16))
        return tracer

    def _of_agent(self, agent: str, model: str | None) -> attributes.Attributes:
        return attributes.of_agent(agent, self._model_name(agent, model), activity.info().workflow_id or "")

    def _model_name(self, agent: str, model: str | None) -> str:
        hosted = self._agents.get(agent)
        return model or (hosted.model.name if hosted else "")

    # ------------------------------------------------------------ export

    async def wait_for_export(self) -> None:
        """Waits until what was said so far is exported; not for long."""
        await self._exports.wait_for_export()

    async def close(self) -> None:
        """Exports what is left. Nothing is shut down: the program, or its next worker, may go on with it."""
        more = [getattr(self._meters, "force_flush", None), self._events and self._events.flush_events]
        await self._exports.close(*filter(None, more))


class ActivitySpan:
    """The span of one try of an activity."""

    def __init__(self, span: api.Span, *, content: bool) -> None:
        self._span = span
        self._content = content

    def end_with_reply(self, reply: ModelReply) -> None:
        self._span.set_attributes(attributes.of_reply(reply))
        if self._content:
            self._span.set_attributes(attributes.output_content(reply))
        self._span.end()

    def end_with_result(self, result: Any) -> None:
        if isinstance(result, ToolResult):
            if kind := error_type(result):
                self._set_error(kind)
            if self._content:
                self._span.set_attributes(attributes.result_content(result))
        self._span.end()

    def end_with_error(self, error: BaseException) -> None:
        """Its type and not its words, which may quote anything."""
        self._set_error(error_type(error))
        self._span.end()

    def _set_error(self, kind: str) -> None:
        self._span.set_attribute("error.type", kind)
        self._span.set_status(Status(StatusCode.ERROR, kind))


class _GivenIds(IdGenerator):
    def __init__(self, trace_id: int, span_id: int) -> None:
        self._trace_id = trace_id
        self._span_id = span_id

    def generate_trace_id(self) -> int:
        return self._trace_id

    def generate_span_id(self) -> int:
        return self._span_id


def _find_provider(traces: Traces) -> tuple[Any, TracerProvider | None]:
    """The provider that spans go to; and the same one again if it was made here, else None."""
    if traces.provider is not None:
        return traces.provider, None
    current = api.get_tracer_provider()
    if not isinstance(current, api.ProxyTracerProvider):
        return current, None
    provider = TracerProvider(resource=_make_resource())
    provider.add_span_processor(BatchSpanProcessor(_make_exporter()))
    api.set_tracer_provider(provider)  # so that the spans of tools go there, too
    return provider, provider


def _make_exporter() -> Any:
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
    if protocol not in (None, "", "http/protobuf"):
        raise InvalidSetting(
            f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol!r}, but everturn's exporter speaks only http/protobuf.",
            cure="Unset it, or give a provider with your own exporter: Worker(..., traces=Traces(provider=...)).",
        )
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter()


def _make_resource() -> Resource:
    named = "OTEL_SERVICE_NAME" in os.environ or SERVICE_NAME in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    return Resource.create({} if named else {SERVICE_NAME: "everturn"})


def _sdk_tracer(provider: Any) -> Tracer:
    tracer = _sdk_tracer_in(provider.get_tracer("everturn", version("everturn"), schema_url=SCHEMA_URL))
    if tracer is None:
        raise InvalidSetting(
            f"Traces can't go to a {type(provider).__name__}: there is no tracer of OpenTelemetry's SDK in it.",
            cure="Give a TracerProvider of opentelemetry.sdk.trace, or one that wraps it, as Logfire's does.",
        )
    return tracer


def _sdk_tracer_in(tracer: Any, *, depth: int = MOST_WRAPPERS) -> Tracer | None:
    """The SDK's tracer, which others wrap under names of their own: temporalio's has it as `_tracer`, to be still in
    replays of workflows; Logfire's (5.4.0) as `tracer`. Only it takes the ids that everturn gives to spans."""
    if isinstance(tracer, Tracer):
        return tracer
    if depth == 0 or not isinstance(tracer, api.Tracer):
        return None
    for value in getattr(tracer, "__dict__", {}).values():
        if tracer_inside := _sdk_tracer_in(value, depth=depth - 1):
            return tracer_inside
    return None


def _parent_context(context: TraceContext | None) -> Context:
    if context is None:
        return Context()
    return api.set_span_in_context(_remote_span(context), Context())


def _remote_span(context: TraceContext) -> api.Span:
    return api.NonRecordingSpan(_span_context(context))


def _span_context(context: TraceContext) -> SpanContext:
    return SpanContext(
        int(context.trace_id, 16),
        int(context.span_id, 16),
        is_remote=True,
        trace_flags=TraceFlags(int(context.sampled)),
        trace_state=_trace_state(context.tracestate),
    )


def _trace_state(written: str) -> TraceState:
    return TraceState.from_header([written] if written else [])


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1_000_000) * 1_000


class OtelMeter:
    """The metrics of gen_ai_metrics.py. `provider`: the program's MeterProvider, or what `_meter_provider` gives."""

    def __init__(self, provider: MeterProvider) -> None:
        meter = provider.get_meter("everturn")
        self._duration = meter.create_histogram(
            DURATION, "s", "How long turns and calls took.", explicit_bucket_boundaries_advisory=BUCKETS[DURATION]
        )
        self._tokens = meter.create_histogram(
            TOKENS, "{token}", "Tokens of model turns.", explicit_bucket_boundaries_advisory=BUCKETS[TOKENS]
        )

    def record(self, operation: Operation) -> None:
        attributes = dict(operation.attributes)
        if operation.error:
            attributes["error.type"] = operation.error
        self._duration.record(operation.seconds, attributes)
        for kind, tokens in operation.tokens.items():
            self._tokens.record(tokens, {**operation.attributes, "gen_ai.token.type": kind})


def _meter_provider(*, resource: Resource | None) -> MeterProvider:
    """The program's own meter provider. If it has none, and everturn had to make a tracer provider, too: a new one that
    exports by OTLP over HTTP. `resource`: the one of that tracer provider; None: everturn made none."""
    if resource is None or os.environ.get("OTEL_METRICS_EXPORTER") == "none":
        return metrics.get_meter_provider()
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics import MeterProvider as SdkMeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    reader = PeriodicExportingMetricReader(OTLPMetricExporter())
    metrics.set_meter_provider(SdkMeterProvider([reader], resource=resource))
    return metrics.get_meter_provider()  # the program's own, if it has set one
