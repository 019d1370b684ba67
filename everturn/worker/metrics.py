"""Numbers for Prometheus, through Temporal's own meter, so that they come beside the SDK's.

| metric | kind | labels, beside namespace and task_queue |
|---|---|---|
| everturn_turns_total | counter | agent, outcome: ok, retried or stalled |
| everturn_tokens_total | counter | agent, kind: input, cached or output |
| everturn_tool_calls_total | counter | agent, tool, outcome: ok, error (the model is told) or failed (Temporal is) |
| everturn_retries_total | counter | activity |
| everturn_prompt_cache_collapses_total | counter | agent, provider, activity_type; see prompt_cache_watch.py |
| everturn_prefix_cache_hits_total, everturn_prefix_cache_misses_total | counter | |
| everturn_prefix_cache_bytes | gauge | |
| everturn_rate_limit_waiting, everturn_rate_limit_rate | gauge | provider, key: its variable; see limit_watch.py |
| everturn_evaluations_total | counter | evaluator, agent, outcome: judged or failed; see evaluations/reports.py |
| everturn_evaluation_score | histogram | evaluator, agent, result: its name |
| everturn_evaluation_tokens_total | counter | evaluator, agent |
| everturn_rate_limit_refusals_total | counter | provider, key |

With EVERTURN_TENANTS_IN_METRICS, turns, tokens and tool calls have the label tenant, too: empty without one.

How long turns and tools take is gen_ai_client_operation_duration_seconds: see gen_ai_metrics.py. The SDK's own
temporal_activity_execution_latency says it by activity_type.
"""

from __future__ import annotations

import socket
from typing import Any, Final

from temporalio import activity
from temporalio.client import Client
from temporalio.common import MetricMeter
from temporalio.exceptions import ApplicationError
from temporalio.runtime import PrometheusConfig, Runtime, TelemetryConfig
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from everturn import names
from everturn.activities.prefix_cache import PrefixCache
from everturn.errors import InvalidSetting
from everturn.evaluations.reports import SCORE_BUCKETS, SCORE_METRIC
from everturn.logs import WORKER_HEARTBEATS, core_logs
from everturn.payloads import ModelReply, ModelRequest, ToolRequest
from everturn.records import ToolResult
from everturn.worker.gen_ai_metrics import BUCKETS, PROMETHEUS

OTHER_TENANTS: Final = "other"
"""The label of tenants beyond the number that get a label of their own."""


def expose(address: str) -> None:
    """Shows this process's metrics at http://address/metrics. Call it before the process's first Temporal client.

    `address` is host:port. Raises InvalidSetting.
    """
    host, _, port = address.rpartition(":")
    try:
        bound = f"{socket.gethostbyname(host)}:{port}"
        buckets = {PROMETHEUS[name]: bounds for name, bounds in BUCKETS.items()} | {SCORE_METRIC: SCORE_BUCKETS}
        prometheus = PrometheusConfig(
            bind_address=bound,
            histogram_bucket_overrides=buckets,
            counters_total_suffix=True,  # OpenMetrics' form: Prometheus warns of counters without it
        )
        telemetry = TelemetryConfig(logging=core_logs(), metrics=prometheus)
        runtime = Runtime(telemetry=telemetry, worker_heartbeat_interval=WORKER_HEARTBEATS)
        Runtime.set_default(runtime, error_if_already_set=False)
    except (OSError, ValueError) as error:
        raise InvalidSetting(
            f"No metrics can be shown at {address!r}: {error}.", cure="Set EVERTURN_METRICS to a free host:port."
        ) from None


def meter_of(client: Client, *, task_queue: str) -> MetricMeter | None:
    """The meter of Temporal's runtime; None if that shows its metrics to nobody."""
    meter: MetricMeter = (client.service_client.config.runtime or Runtime.default()).metric_meter
    if meter is MetricMeter.noop:
        return None
    return meter.with_additional_attributes({"namespace": client.namespace, "task_queue": task_queue})


class Metrics(Interceptor):
    """Counts what a worker's activities do."""

    def __init__(self, meter: MetricMeter, *, prefixes: PrefixCache, tenants: int = 0) -> None:
        """`tenants`: how many tenants get a label of their own. Zero: there is no such label."""
        self._turns = meter.create_counter("everturn_turns", "Model turns that were asked for.")
        self._tokens = meter.create_counter("everturn_tokens", "Tokens, as counted by the providers.")
        self._tool_calls = meter.create_counter("everturn_tool_calls", "Tool calls that ran on this worker.")
        self._retries = meter.create_counter("everturn_retries", "Retries of activities.")
        self._hits = meter.create_counter("everturn_prefix_cache_hits", "Turns whose prefix was in memory.")
        self._misses = meter.create_counter("everturn_prefix_cache_misses", "Turns that had to read the history.")
        self._bytes = meter.create_gauge("everturn_prefix_cache_bytes", "Memory for prefixes and results.")
        self._prefixes = prefixes
        self._most_tenants = tenants
        self._tenants = set[str]()
        for counter in (self._hits, self._misses):
            counter.add(0)  # so that a rate can be had from the first one on

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002
        return _CountedActivities(next, self)

    def count_activity(self, request: Any, result: Any) -> None:
        """What an activity was asked and what came of it: its result, or the error that it ended with."""
        match request:
            case _ if isinstance(result, ApplicationError) and result.type == names.NOT_HOSTED:
                pass  # it was handed back, for another worker to count
            case ModelRequest(agent=agent):
                labels = {"agent": agent, **self._tenant_label(request)}
                self._turns.add(1, {**labels, "outcome": _turn_outcome(result)})
                if isinstance(result, ModelReply):
                    usage = result.usage
                    for kind, tokens in (
                        ("input", usage.input_tokens),
                        ("cached", usage.cached_tokens),
                        ("output", usage.output_tokens),
                    ):
                        self._tokens.add(tokens, {**labels, "kind": kind})
            case ToolRequest(agent=agent):
                tool = request.tool or activity.info().activity_type
                labels = {"agent": agent, "tool": tool, **self._tenant_label(request)}
                self._tool_calls.add(1, {**labels, "outcome": _tool_outcome(result)})
        if activity.info().attempt > 1:
            self._retries.add(1, {"activity": activity.info().activity_type})
        self._count_prefixes()

    def _tenant_label(self, request: ModelRequest | ToolRequest) -> dict[str, str]:
        """The label, if there is one: each new one makes as many time series as there are agents and tools."""
        if not self._most_tenants:
            return {}
        tenant = request.tenant or ""
        if tenant and tenant not in self._tenants:
            if len(self._tenants) >= self._most_tenants:
                return {"tenant": OTHER_TENANTS}
            self._tenants.add(tenant)
        return {"tenant": tenant}

    def _count_prefixes(self) -> None:
        hits, misses = self._prefixes.take_counts()
        self._hits.add(hits)
        self._misses.add(misses)
        self._bytes.set(self._prefixes.bytes)


class _CountedActivities(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, metrics: Metrics) -> None:  # noqa: A002
        super().__init__(next)
        self._metrics = metrics

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002
        request = next(iter(input.args), None)
        try:
            result = await self.next.execute_activity(input)
        except BaseException as error:
            self._metrics.count_activity(request, error)
            raise
        self._metrics.count_activity(request, result)
        return result


def _turn_outcome(result: Any) -> str:
    if isinstance(result, BaseException):
        return "stalled" if isinstance(result, ApplicationError) and result.non_retryable else "retried"
    return "ok"


def _tool_outcome(result: Any) -> str:
    if isinstance(result, BaseException):
        return "failed"
    return "error" if isinstance(result, ToolResult) and result.is_error else "ok"
