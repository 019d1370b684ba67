"""For a worker with another heartbeat profile than the usual one: it sets its own heartbeat timeout for the
activities that its conversations schedule, and a cancellation need not wait for the next heartbeat.

The timeout is not part of the conversation's input: a conversation goes on, however its workers are set. A replay does
not compare the timeout.
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


def set_heartbeat_timeout(timeout: timedelta, *, cancelled: Callable[[str], None]) -> type[WorkflowInboundInterceptor]:
    """A class for the SDK, which makes one instance for each conversation in memory. It sets `timeout` for everturn's
    activities. If one is to be cancelled, it calls `cancelled` with the run's ID, in a thread of the workflow task: an
    activity learns of its cancellation only with a heartbeat."""

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
            handle.add_done_callback(partial(_pass_on_cancellation, workflow.info().run_id, cancelled))
            return handle

    return Inbound


def _pass_on_cancellation(run_id: str, cancelled: Callable[[str], None], ended: asyncio.Task[Any]) -> None:
    # A conversation that the worker forgets ends what waits for its activities by another error.
    if ended.cancelled() or ((error := ended.exception()) is not None and is_cancelled_exception(error)):
        cancelled(run_id)
