"""Short steps of conversations run on the event loop, all others in threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest
from temporalio.bridge.proto.workflow_activation import WorkflowActivation, WorkflowActivationJob

from everturn.worker.workflow_steps import SHORT_BYTES, WorkflowSteps

seen: ContextVar[str] = ContextVar("seen", default="nothing")


def _activation(job: WorkflowActivationJob | None = None, *, size: int = 10) -> WorkflowActivation:
    job = job or WorkflowActivationJob()
    if not job.WhichOneof("variant"):
        job.signal_workflow.input.add(data=b"x" * size)
    return WorkflowActivation(run_id="run", jobs=[job])


def _query() -> WorkflowActivationJob:
    job = WorkflowActivationJob()
    job.query_workflow.query_id = "one"
    return job


def _here(_: object) -> int:
    return threading.get_ident()


async def _run(steps: WorkflowSteps, function: Callable[[Any], Any], activation: WorkflowActivation) -> Any:
    return await asyncio.get_running_loop().run_in_executor(steps, function, activation)


async def _place(activation: WorkflowActivation, *, only_ours: bool = True) -> int:
    with WorkflowSteps() as steps:
        steps.only_ours = only_ours
        place = await _run(steps, _here, activation)
        assert isinstance(place, int)
        return place


async def test_a_short_step_runs_on_the_event_loop() -> None:
    assert await _place(_activation()) == threading.get_ident()


@pytest.mark.parametrize("activation", [_activation(size=SHORT_BYTES), _activation(_query())], ids=["large", "query"])
async def test_what_may_take_long_runs_in_a_thread(activation: WorkflowActivation) -> None:
    assert await _place(activation) != threading.get_ident()


async def test_with_workflows_of_an_application_each_step_runs_in_a_thread() -> None:
    assert await _place(_activation(), only_ours=False) != threading.get_ident()


async def test_a_step_that_ends_another_event_loop_leaves_this_one_running() -> None:
    def as_a_workflow_does(_: object) -> str:
        seen.set("a workflow's")
        asyncio._set_running_loop(None)
        return "done"

    with WorkflowSteps() as steps:
        steps.only_ours = True
        assert await _run(steps, as_a_workflow_does, _activation()) == "done"
        await asyncio.sleep(0)  # which needs the running loop
    assert seen.get() == "nothing"


async def test_what_a_step_raises_is_raised() -> None:
    def fails(_: object) -> None:
        asyncio._set_running_loop(None)
        raise LookupError("lost")

    with WorkflowSteps() as steps:
        steps.only_ours = True
        with pytest.raises(LookupError, match="lost"):
            await _run(steps, fails, _activation())
        await asyncio.sleep(0)
