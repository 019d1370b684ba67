"""What a worker that beats seldom does about it: how long it may be silent in what a conversation schedules, and that a
cancellation need not wait for the next beat.

It is no part of the conversation's input, so that one goes on under whatever its workers are set to; and a replay does
not compare it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

from temporalio import workflow
from temporalio.exceptions import is_cancelled_exception
from temporalio.worker import StartActivityInput, WorkflowInboundInterceptor, WorkflowOutboundInterceptor

from everturn import names


def lost_after(timeout: timedelta, *, cancelled: Callable[[str], None]) -> type[WorkflowInboundInterceptor]:
    """For the SDK, which makes one for each conversation that it has in memory. `cancelled` is told the run whose
    activity is to be cancelled, which comes in with a beat; it is called in a thread of the workflow task."""

    class Inbound(WorkflowInboundInterceptor):
        def init(self, outbound: WorkflowOutboundInterceptor) -> None:
            super().init(Outbound(outbound))

    class Outbound(WorkflowOutboundInterceptor):
        def start_activity(self, input: StartActivityInput) -> Any:  # noqa: A002
            users_own = (input.activity_id or "").startswith(names.ACTIVITY_OF_CALL)
            if input.heartbeat_timeout is None or users_own:
                return self.next.start_activity(input)
            input.heartbeat_timeout = timeout
            handle = self.next.start_activity(input)
            handle.add_done_callback(partial(_told, workflow.info().run_id, cancelled))
            return handle

    return Inbound


def _told(run_id: str, cancelled: Callable[[str], None], ended: asyncio.Task[Any]) -> None:
    # A conversation that the worker forgets ends what waits for its activities by another error.
    error = None if ended.cancelled() else ended.exception()
    if ended.cancelled() or (error is not None and is_cancelled_exception(error)):
        cancelled(run_id)
