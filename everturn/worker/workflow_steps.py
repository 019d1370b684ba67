"""Where the steps of workflows run: short ones of conversations on the event loop, all others in threads.

temporalio runs each step in a thread, so that it notices a user's workflow that never ends. A step of a conversation
takes less than a millisecond, no code of a user's runs in it, and handing it to a thread and back costs a twentieth of
a worker's CPU (decision 0051).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import Context
from typing import Any, Final

from temporalio.bridge.proto.workflow_activation import WorkflowActivation

SHORT_BYTES: Final = 32 * 1024
"""Of what a workflow is given in a step. Reading more than this takes milliseconds, in which the worker's other work
would wait."""
MOST_STEP_THREADS: Final = 500
"""As many as temporalio has by itself."""


class WorkflowSteps(ThreadPoolExecutor):
    """For `Worker(workflow_task_executor=)`. temporalio submits `workflow.activate(activation)` from the event loop."""

    def __init__(self) -> None:
        super().__init__(MOST_STEP_THREADS, thread_name_prefix="temporal_workflow_")
        self.only_ours = False
        """The worker has no workflows but everturn's."""

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        activation = next(iter(arguments), None)
        if not (self.only_ours and isinstance(activation, WorkflowActivation) and _is_short(activation)):
            return super().submit(function, *arguments, **named)
        done: Future[Any] = Future()
        # Not at once: the caller is in a task, and Python 3.14 refuses to begin another one inside of it. And with a
        # context of its own, as in a thread: what a workflow sets there is nobody else's.
        asyncio.get_running_loop().call_soon(_run_step, done, function, activation, context=Context())
        return done


def _is_short(activation: WorkflowActivation) -> bool:
    asks = any(job.HasField("query_workflow") for job in activation.jobs)  # its answer may be a whole transcript
    return not asks and activation.ByteSize() <= SHORT_BYTES


def _run_step(done: Future[Any], function: Callable[..., Any], activation: WorkflowActivation) -> None:
    loop = asyncio.get_running_loop()
    if not done.set_running_or_notify_cancel():
        return
    try:
        completion = function(activation)
    except BaseException as error:  # noqa: BLE001 - as an executor does: whoever waits for the step raises it
        asyncio._set_running_loop(loop)
        done.set_exception(error)
    else:
        asyncio._set_running_loop(loop)  # a workflow is an event loop itself, and ends as the one that runs
        done.set_result(completion)
