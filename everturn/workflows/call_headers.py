"""The header of a user's own activity, which says which call it serves: its input is its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from temporalio import workflow
from temporalio.worker import StartActivityInput, WorkflowInboundInterceptor, WorkflowOutboundInterceptor

from everturn import names
from everturn.plans import ActivityCall

_served: ContextVar[ActivityCall | None] = ContextVar("served", default=None)


@contextmanager
def serving(call: ActivityCall) -> Iterator[None]:
    """Activities that are scheduled in the block serve this call."""
    _served.set(call)
    try:
        yield
    finally:
        _served.set(None)


class CallHeaders(WorkflowInboundInterceptor):
    def init(self, outbound: WorkflowOutboundInterceptor) -> None:
        super().init(_HeaderOutbound(outbound))


class _HeaderOutbound(WorkflowOutboundInterceptor):
    def start_activity(self, input: StartActivityInput) -> Any:  # noqa: A002
        if call := _served.get():
            header = workflow.payload_converter().to_payload(call)
            input.headers = {**input.headers, names.CALL_HEADER: header}
        return self.next.start_activity(input)
