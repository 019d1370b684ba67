"""Waiting for tasks that may be cancelled: results that come in together with a cancellation count, for the history has
them.

A transcript without them would not be the fold over the history. Temporal hands over both in one workflow task: a
signal or an update before the results, the cancellation of the workflow beside them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError

R = TypeVar("R")

CANCELLING: Final = "everturn_cancelling"
"""The function by which a run says to its worker, and to no history, that it cancels something here."""

SETTLING_STEPS = 10
"""Turns of the event loop, and some more, in which a result that is there reaches its handle."""


async def result_or_cancellation(
    handle: asyncio.Task[R], *, is_result: Callable[[BaseException], bool] = lambda _: False
) -> R:
    """The activity's or child's result, even if the cancellation of this task comes in together with it. `is_result`:
    whether its failing with such an error is a result, too. Then this error is raised."""
    try:
        return await asyncio.shield(handle)
    except asyncio.CancelledError:
        await let_results_arrive()
        if not handle.done():
            handle.cancel()
        # Temporal answers within this workflow task: with the result if it is there, else with the cancellation.
        await _wait_until_done([handle])
        if handle.cancelled():
            raise
        error = handle.exception()
        if error and not is_result(error):
            raise
        return handle.result()


def begin_signal(signal: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """A signal to another workflow that nobody has to wait for: its error is no error of asyncio's then."""
    sending = asyncio.create_task(signal)
    sending.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    return sending


async def send_signal(signal: Coroutine[Any, Any, None]) -> None:
    """Sends a signal to another workflow, from a task that may be cancelled meanwhile. Raises TemporalError if it did
    not arrive.

    The SDK's own await of a signal that is under way swallows the cancellation
    (findings/temporalio-a-cancelled-signal-is-no-cancelled-task.sh)."""
    await asyncio.shield(begin_signal(signal))


async def wait_for_turn(turn: asyncio.Task[Any], *, on_lost: Callable[[BaseException], None]) -> None:
    """Returns once a model turn has a result. Raises what it raises; and CancelledError if it was cancelled.

    A cancelled turn hands over what it has said, or its worker is silent and Temporal says so: its end is waited for,
    whatever else is cancelled meanwhile. Only with the cancellation of the whole workflow, what has not come in
    together with it is not waited for. `on_lost` is called with the error of a cancelled turn that has no result."""
    try:
        await asyncio.shield(turn)
    except asyncio.CancelledError:
        await let_results_arrive()
        if not turn.done():
            turn.cancel()
            if hurry := workflow.extern_functions().get(CANCELLING):  # in a replay, it only costs a heartbeat
                hurry(workflow.info().run_id)
        while not turn.done() and workflow.cancellation_reason() is None:
            await _wait_despite_cancellation(workflow.wait([turn]))
            if not turn.done() and workflow.cancellation_reason() is not None:
                await let_results_arrive()  # what came in with it counts
        if not turn.done() or turn.cancelled():
            raise
        if error := turn.exception():
            on_lost(error)
            raise


async def run_together(*parts: Coroutine[Any, Any, None]) -> None:
    """Runs them at the same time, as asyncio.gather does; but if they are cancelled, it waits for each to end."""
    tasks = [asyncio.create_task(part) for part in parts]
    try:
        await asyncio.gather(*tasks)
    except (asyncio.CancelledError, ActivityError):
        for task in tasks:
            if not task.cancelling():  # it was one activity that was cancelled, and not we
                task.cancel()
        await _wait_until_done(tasks)
        raise


def stop_if_cancelled() -> None:
    """Raises if this task was cancelled, and a result that came in together with that was taken first."""
    task = asyncio.current_task()
    if task and task.cancelling():
        raise asyncio.CancelledError


async def let_results_arrive() -> None:
    """Returns once all that came in with a cancellation has reached its handles."""
    for _ in range(SETTLING_STEPS):
        await _wait_despite_cancellation(asyncio.sleep(0))


async def _wait_until_done(tasks: Sequence[asyncio.Task[Any]]) -> None:
    while not all(task.done() for task in tasks):
        await _wait_despite_cancellation(workflow.wait(tasks))


async def _wait_despite_cancellation(short: Awaitable[Any]) -> None:
    """Waits for what ends within this workflow task, even if a second cancellation comes in with the first."""
    with suppress(asyncio.CancelledError):
        await short
