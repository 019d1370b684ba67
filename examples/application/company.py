"""What the shop's company gives all its Temporal applications: encryption, an audit trail, traces. It knows nothing of
everturn."""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.contrib.opentelemetry import OpenTelemetryPlugin, create_tracer_provider
from temporalio.converter import (
    DataConverter,
    DefaultFailureConverterWithEncodedAttributes,
    PayloadCodec,
)
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor


class Encrypting(PayloadCodec):
    """Its key is in the environment, as 64 hexadecimal digits."""

    def __init__(self) -> None:
        self._cipher = AESGCM(bytes.fromhex(os.environ["COMPANY_KEY"]))

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [self._encrypted(payload) for payload in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [self._decrypted(payload) for payload in payloads]

    def _encrypted(self, payload: Payload) -> Payload:
        nonce = os.urandom(12)
        data = nonce + self._cipher.encrypt(nonce, payload.SerializeToString(), None)
        return Payload(metadata={"encoding": b"binary/company"}, data=data)

    def _decrypted(self, payload: Payload) -> Payload:
        if payload.metadata.get("encoding") != b"binary/company":
            return payload
        return Payload.FromString(self._cipher.decrypt(payload.data[:12], payload.data[12:], None))


class Audit(Interceptor):
    """Prints each activity that runs."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002
        return _Audited(next)


class _Audited(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002
        info = activity.info()
        print("audit:", info.workflow_id, info.activity_type, flush=True)
        return await super().execute_activity(input)


def converter() -> DataConverter:
    return replace(
        DataConverter.default,
        payload_codec=Encrypting(),
        failure_converter_class=DefaultFailureConverterWithEncodedAttributes,
    )


def tracing() -> OpenTelemetryPlugin:
    """Temporal's own traces, for a client; exported if OTEL_EXPORTER_OTLP_ENDPOINT says where."""
    provider = create_tracer_provider()
    if "OTEL_EXPORTER_OTLP_ENDPOINT" in os.environ:
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return OpenTelemetryPlugin(add_temporal_spans=True)
