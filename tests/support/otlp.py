"""A receiver of traces: OTLP over HTTP as OpenTelemetry specifies it, on loopback. What came in can be looked at."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

KINDS = {Span.SPAN_KIND_CLIENT: "client", Span.SPAN_KIND_INTERNAL: "internal", Span.SPAN_KIND_SERVER: "server"}


@dataclass(frozen=True)
class Received:
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    """Empty for a root."""
    kind: str
    begin: float
    """Seconds since 1970."""
    end: float
    attributes: dict[str, Any]
    links: tuple[tuple[str, str], ...]
    """Trace id and span id of each."""
    error: str
    """Empty if it says of none."""
    service: str
    scope: str

    @property
    def seconds(self) -> float:
        return self.end - self.begin


class Receiver:
    """`with Receiver() as receiver:` ... `receiver.spans`: all that came, in the order in which it came."""

    def __init__(self) -> None:
        self.spans: list[Received] = []
        self.counts: dict[tuple[str, ...], int] = {}
        """Of histograms, by name and what tells them apart: so many values."""
        self.stands_still = threading.Event()
        """Clear: it answers nothing until this is set."""
        self.stands_still.set()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.stands_still.wait(60)
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                match self.path:
                    case "/v1/traces":
                        receiver.take(body)
                        self._answer(200, ExportTraceServiceResponse().SerializeToString())
                    case "/v1/metrics":
                        receiver.take_metrics(body)
                        self._answer(200, ExportMetricsServiceResponse().SerializeToString())
                    case _:
                        self._answer(404, b"")

            def _answer(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("content-type", "application/x-protobuf")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the parent's name
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True

    @property
    def endpoint(self) -> str:
        """What OTEL_EXPORTER_OTLP_ENDPOINT is set to."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stands_still.set()
        self._server.shutdown()
        self._server.server_close()

    def take(self, body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        for resource in request.resource_spans:
            service = str(_attributes(resource.resource.attributes).get("service.name", ""))
            for scope in resource.scope_spans:
                self.spans += [_received(span, service, scope.scope.name) for span in scope.spans]

    def take_metrics(self, body: bytes) -> None:
        for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
                for point in metric.histogram.data_points:
                    told = _attributes(point.attributes)
                    kinds = ("gen_ai.operation.name", "gen_ai.request.model", "gen_ai.tool.name", "gen_ai.token.type")
                    self.counts[(metric.name, *(told[kind] for kind in kinds if kind in told))] = point.count

    # ------------------------------------------------------------ looking

    def named(self, beginning: str) -> list[Received]:
        return [span for span in self.spans if span.name.startswith(beginning)]

    def one(self, name: str) -> Received:
        found = [span for span in self.spans if span.name == name]
        assert len(found) == 1, f"{len(found)} spans are called {name!r}: {self.names}"
        return found[0]

    @property
    def names(self) -> list[str]:
        return sorted(span.name for span in self.spans)

    def check(self) -> None:
        """No span came twice, and each has its parent, unless that is elsewhere."""
        ids = [span.span_id for span in self.spans]
        twice = [span.name for span in self.spans if ids.count(span.span_id) > 1]
        assert not twice, f"came twice: {twice}"
        orphans = [span.name for span in self.spans if span.parent_id and span.parent_id not in ids]
        assert not orphans, f"without their parents: {orphans}"
        odd = [span.name for span in self.spans if span.seconds < 0]
        assert not odd, f"ended before they began: {odd}"


def _received(span: Span, service: str, scope: str) -> Received:
    return Received(
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        kind=KINDS.get(span.kind, str(span.kind)),
        begin=span.start_time_unix_nano / 1e9,
        end=span.end_time_unix_nano / 1e9,
        attributes=_attributes(span.attributes),
        links=tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
        error=span.status.message or "error" if span.status.code == Status.STATUS_CODE_ERROR else "",
        service=service,
        scope=scope,
    )


def _attributes(pairs: Sequence[KeyValue]) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(one) for one in value.array_value.values]
    return getattr(value, kind) if kind else None
