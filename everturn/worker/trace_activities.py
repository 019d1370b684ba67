"""The spans of a worker's model turns and tool calls.

Nothing of OpenTelemetry is imported before a worker with `traces=` begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from everturn.activities.prefix_cache import PrefixCache
from everturn.agent import Agent
from everturn.errors import InvalidSetting
from everturn.payloads import ModelReply, ModelRequest, ToolRequest
from everturn.system import extras
from everturn.tracing import ExportSpans
from everturn.worker.gen_ai_metrics import Sink, began_to_run, is_operation
from everturn.worker.traces import Traces

if TYPE_CHECKING:
    from everturn.worker.spans import Spans


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

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002
        return _Traced(next, self._spans)

    async def close(self) -> None:
        """Exports what is left, and waits for that."""
        await self._spans.close()


class _Traced(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, spans: Spans) -> None:  # noqa: A002
        super().__init__(next)
        self._spans = spans

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002
        request = input.args[0] if input.args else None
        match request:
            case ModelRequest() if is_operation(request):
                return await self._turn(input, request)
            case ToolRequest(trace=parent) if parent and is_operation(request):
                return await self._call(input, request)
            case ExportSpans():
                self._spans.say_the_rest(request)
                await self._spans.exported()
        return await self.next.execute_activity(input)

    async def _turn(self, input: ExecuteActivityInput, request: ModelRequest) -> Any:  # noqa: A002
        if request.trace is None:
            # The last turn's worker does not trace; from the next turn on, it is handed what it has to know.
            return _told(await self.next.execute_activity(input), "sampled")
        if not self._spans.sampled(request):
            with self._spans.unsampled(request.trace):
                return _told(await self.next.execute_activity(input), "dropped")
        with self._spans.turn(request) as span:
            try:
                reply = await self.next.execute_activity(input)
            except BaseException as error:
                if began_to_run(error):
                    span.failed(error)
                    await self._spans.exported()
                raise
            if isinstance(reply, ModelReply):
                span.replied(reply)
                self._spans.say_handed(request, reply)
        await self._spans.exported()
        return _told(reply, "sampled")

    async def _call(self, input: ExecuteActivityInput, request: ToolRequest) -> Any:  # noqa: A002
        with self._spans.call(request) as span:
            try:
                result = await self.next.execute_activity(input)
            except BaseException as error:
                if began_to_run(error):
                    span.failed(error)
                    await self._spans.exported()
                raise
            span.returned(result)
        await self._spans.exported()
        return result


def _told(reply: Any, traced: str) -> Any:
    return reply.model_copy(update={"traced": traced}) if isinstance(reply, ModelReply) else reply
