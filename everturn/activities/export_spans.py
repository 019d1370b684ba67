"""Exports the last spans of a conversation when it ends. The interceptor of a worker that traces does that, as for
model turns (worker/trace_activities.py); a worker without traces has nothing to do."""

from __future__ import annotations

from temporalio import activity

from everturn import names
from everturn.tracing import ExportSpans


@activity.defn(name=names.EXPORT_SPANS)
async def export_spans(spans: ExportSpans) -> None:
    pass
