"""Which activities go to any worker of the queue, and not to the one that runs the conversation.

Temporal hands an activity to the worker that schedules it, if that has room ("eager"). A worker that lacks the agent or
the tool would be given every try.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from temporalio.worker import StartActivityInput, WorkflowInboundInterceptor, WorkflowOutboundInterceptor

_by_the_queue: ContextVar[bool] = ContextVar("by_the_queue", default=False)


@contextmanager
def by_the_queue() -> Iterator[None]:
    """Activities that are scheduled in the block are for any worker of the queue."""
    _by_the_queue.set(True)
    try:
        yield
    finally:
        _by_the_queue.set(False)  # a conversation that a worker forgets may end in another context


class EagerDispatch(WorkflowInboundInterceptor):
    def init(self, outbound: WorkflowOutboundInterceptor) -> None:
        super().init(_Outbound(outbound))


class _Outbound(WorkflowOutboundInterceptor):
    def start_activity(self, input: StartActivityInput) -> Any:  # noqa: A002
        input.disable_eager_execution |= _by_the_queue.get()
        return self.next.start_activity(input)
