"""Numbers after OpenTelemetry's semantic conventions for generative AI (1.41): how long operations take, and tokens.

- gen_ai.client.operation.duration, in seconds: gen_ai.operation.name, gen_ai.provider.name, gen_ai.request.model,
  gen_ai.agent.name; gen_ai.tool.name of a tool call; error.type of what failed.
- gen_ai.client.token.usage: the same, of model turns, and gen_ai.token.type: input or output.

They come through Temporal's own meter, beside the SDK's, with dots as underscores: its Prometheus takes no others. A
worker that traces also exports them by OpenTelemetry, with their dots.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from temporalio import activity
from temporalio.common import MetricMeter
from temporalio.exceptions import ApplicationError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from everturn import names
from everturn.agent import Agent
from everturn.payloads import ModelReply, ModelRequest, ToolRequest
from everturn.records import ToolResult
from everturn.tracing import TOOL_ERROR
from everturn.worker.span_attributes import of_model

DURATION: Final = "gen_ai.client.operation.duration"
TOKENS: Final = "gen_ai.client.token.usage"

PROMETHEUS: Final = {DURATION: "gen_ai_client_operation_duration_seconds", TOKENS: "gen_ai_client_token_usage"}

BUCKETS: Final = {
    DURATION: [0.01 * 2**power for power in range(14)],
    TOKENS: [float(4**power) for power in range(14)],
}
"""As the conventions have them."""


@dataclass(frozen=True)
class Operation:
    """A model turn or a tool call that ended."""

    seconds: float
    attributes: Mapping[str, str]
    error: str = ""
    tokens: Mapping[str, int] = field(default_factory=dict)
    """By gen_ai.token.type."""


class Sink(Protocol):
    def record(self, operation: Operation) -> None: ...


class TemporalMeter:
    """Through the meter of Temporal's runtime: to Prometheus, or where else that exports to."""

    def __init__(self, meter: MetricMeter) -> None:
        self._duration = meter.create_histogram_float(PROMETHEUS[DURATION], "How long turns and calls took.", "s")
        self._tokens = meter.create_histogram(PROMETHEUS[TOKENS], "Tokens of model turns.", "{token}")

    def record(self, operation: Operation) -> None:
        labels = {name.replace(".", "_"): value for name, value in operation.attributes.items()}
        # Prometheus wants the same labels each time.
        self._duration.record(operation.seconds, {"gen_ai_tool_name": "", **labels, "error_type": operation.error})
        for kind, tokens in operation.tokens.items():
            self._tokens.record(tokens, {**labels, "gen_ai_token_type": kind})


class GenAiMetrics(Interceptor):
    """Measures a worker's model turns and tool calls."""

    def __init__(self, agents: Mapping[str, Agent], sinks: Sequence[Sink]) -> None:
        self._agents = agents
        self._sinks = sinks

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002
        return _MeasuredActivities(next, self)

    def record(self, request: ModelRequest | ToolRequest, result: Any, *, seconds: float) -> None:
        """What an activity was asked and what came of it: its result, or the error that it ended with."""
        tool = isinstance(request, ToolRequest) and (request.tool or activity.info().activity_type)
        hosted = self._agents.get(request.agent)
        model = (isinstance(request, ModelRequest) and request.model) or (hosted.model.name if hosted else "")
        attributes = {
            "gen_ai.operation.name": "execute_tool" if tool else "chat",
            "gen_ai.agent.name": request.agent,
            **of_model(model),
        }
        if tool:
            attributes["gen_ai.tool.name"] = tool
        tokens = {}
        if isinstance(result, ModelReply):
            tokens = {"input": result.usage.input_tokens, "output": result.usage.output_tokens}
        operation = Operation(seconds, attributes, error_type(result), tokens)
        for sink in self._sinks:
            sink.record(operation)


class _MeasuredActivities(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, metrics: GenAiMetrics) -> None:  # noqa: A002
        super().__init__(next)
        self._metrics = metrics

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002
        request = next(iter(input.args), None)
        began = time.monotonic()
        if not isinstance(request, ModelRequest | ToolRequest) or not is_operation(request):
            return await self.next.execute_activity(input)
        try:
            result = await self.next.execute_activity(input)
        except BaseException as error:
            if began_to_run(error):
                self._metrics.record(request, error, seconds=time.monotonic() - began)
            raise
        self._metrics.record(request, result, seconds=time.monotonic() - began)
        return result


def is_operation(request: object) -> bool:
    """Whether the current activity runs a model turn or a tool call. Other activities take the same requests."""
    kind = activity.info().activity_type
    if isinstance(request, ModelRequest):
        return kind == names.CALL_MODEL
    return isinstance(request, ToolRequest) and kind not in names.RESERVED_TOOL_NAMES


def began_to_run(error: BaseException) -> bool:
    """Whether the operation began. It did not if, for example, the worker handed it back at once for another one."""
    return not (isinstance(error, ApplicationError) and error.type in names.NEVER_BEGUN)


def error_type(result: Any) -> str:
    """`error.type` of what an activity ended with; empty if that was no error. A type, and no words, which may quote
    anything."""
    if isinstance(result, BaseException):
        return result.type if isinstance(result, ApplicationError) and result.type else type(result).__name__
    return TOOL_ERROR if isinstance(result, ToolResult) and result.is_error else ""
