"""OpenTelemetry's current span of a program that starts a conversation or sends to one."""

from __future__ import annotations

import sys

from everturn.tracing import TraceContext, or_none


def current_context() -> TraceContext | None:
    """None if there is no current span. Does not import OpenTelemetry: if nobody has imported it, there is no span."""
    api = sys.modules.get("opentelemetry.trace")
    if api is None:
        return None
    context = api.get_current_span().get_span_context()
    if not context.is_valid:
        return None
    state = context.trace_state.to_header() if context.trace_state else ""
    written = f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags) & 1:02x}"
    trace = or_none({"traceparent": written, "tracestate": state})
    if not isinstance(trace, TraceContext):
        return None
    return trace
