"""The spans of a worker's model turns and tool calls, and of conversations that end.

Nothing of OpenTelemetry is imported before a worker with `traces=` begins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from temporalio import activity
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from everturn import names
from everturn.activities.prefix_cache import PrefixCache
from everturn.agent import Agent
from everturn.errors import InvalidSetting
from everturn.evaluations.answers import JudgedAnswer
from everturn.evaluations.records import EvaluationRequest, Judgement
from everturn.payloads import ModelReply, ModelRequest, ToolRequest
from everturn.system import extras
from everturn.tracing import ExportSpans
from everturn.worker.gen_ai_metrics import Sink, began_to_run, is_operation
from everturn.worker.traces import Traces

if TYPE_CHECKING:
    from everturn.worker.spans import Spans


@activity.defn(name=names.EXPORT_SPANS)
async def export_spans(spans: ExportSpans) -> None:
    """The last spans of a conversation, which it hands over when it ends. As with model turns, the interceptor below
    exports them; a worker without traces has nothing to do."""


class TraceActivities(Interceptor):
    """Makes the spans of a worker's activities, and exports those that conversations hand them. `close` it once the
    worker has stopped. Raises InvalidSetting if OpenTelemetry is not there."""

    def __init__(self, traces: Traces, agents: Mapping[str, Agent], prefixes: PrefixCache) -> None:
        try:
            from everturn.worker.spans import Spans
        except ImportError:
            raise InvalidSetting(
                "Traces need OpenTelemetry, which is not installed here.", cure=extras.install("otel")
            ) from None
        self._spans = Spans(traces, agents, prefixes)

    @property
    def meter(self) -> Sink:
        """Where its metrics go."""
        return self._spans.meter

    def evaluation_span(
        self, request: EvaluationRequest, answer: JudgedAnswer
    ) -> AbstractContextManager[Callable[[Judgement], None]]:
        """Around a try of a judgement."""
        return self._spans.evaluation_span(request, answer)

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002
        return _TracedActivities(next, self._spans)

    async def close(self) -> None:
        """Exports what is left, and waits for that."""
        await self._spans.close()


class _TracedActivities(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, spans: Spans) -> None:  # noqa: A002
        super().__init__(next)
        self._spans = spans

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002
        request = next(iter(input.args), None)
        match request:
            case ModelRequest() if is_operation(request):
                return await self._run_turn(input, request)
            case ToolRequest(trace=parent) if parent and is_operation(request):
                return await self._run_call(input, request)
            case ExportSpans():
                self._spans.export_rest(request)
                await self._spans.wait_for_export()
        return await self.next.execute_activity(input)

    async def _run_turn(self, input: ExecuteActivityInput, request: ModelRequest) -> Any:  # noqa: A002
        if request.trace is None:
            # The last turn's worker does not trace; from the next turn on, it is handed what it has to know.
            return _with_trace_note(await self.next.execute_activity(input), "sampled")
        if not self._spans.is_sampled(request):
            with self._spans.without_sampling(request.trace):
                return _with_trace_note(await self.next.execute_activity(input), "dropped")
        with self._spans.turn_span(request) as span:
            try:
                reply = await self.next.execute_activity(input)
            except BaseException as error:
                if began_to_run(error):
                    span.end_with_error(error)
                    await self._spans.wait_for_export()
                raise
            if isinstance(reply, ModelReply):
                span.end_with_reply(reply)
                self._spans.export_handed(request, reply)
        await self._spans.wait_for_export()
        return _with_trace_note(reply, "sampled")

    async def _run_call(self, input: ExecuteActivityInput, request: ToolRequest) -> Any:  # noqa: A002
        with self._spans.call_span(request) as span:
            try:
                result = await self.next.execute_activity(input)
            except BaseException as error:
                if began_to_run(error):
                    span.end_with_error(error)
                    await self._spans.wait_for_export()
                raise
            span.end_with_result(result)
        await self._spans.wait_for_export()
        return result


def _with_trace_note(reply: Any, traced: str) -> Any:
    if not isinstance(reply, ModelReply):
        return reply
    return reply.model_copy(update={"traced": traced})
