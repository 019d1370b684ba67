"""The metrics of gen_ai_metrics.py by OpenTelemetry. Imported only by a worker that traces."""

from __future__ import annotations

import os

from opentelemetry import metrics as api
from opentelemetry.metrics import MeterProvider
from opentelemetry.sdk.resources import Resource

from everturn.worker.gen_ai_metrics import BUCKETS, DURATION, TOKENS, Operation


class OtelMeter:
    """`provider`: the program's MeterProvider, or what `meter_provider` gives."""

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


def meter_provider(*, resource: Resource | None) -> MeterProvider:
    """The program's own meter provider. If it has none, and everturn had to make a tracer provider, too: a new one that
    exports by OTLP over HTTP. `resource`: the one of that tracer provider; None: everturn made none."""
    if resource is None or os.environ.get("OTEL_METRICS_EXPORTER") == "none":
        return api.get_meter_provider()
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics import MeterProvider as SdkMeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    api.set_meter_provider(SdkMeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter())], resource=resource))
    return api.get_meter_provider()  # the program's own, if it has set one
