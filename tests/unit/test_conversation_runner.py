"""A conversation is released from its worker's memory only if a query took it a step forward."""

from __future__ import annotations

from typing import Any

import pytest
from temporalio.bridge.proto.workflow_activation import WorkflowActivation

from everturn.worker.unsandboxed_runner import _ByWorkflowTasks


class _Conversation:
    def activate(self, act: WorkflowActivation) -> Any:
        return act.history_length


def _given(events: int, at: int, *jobs: str) -> WorkflowActivation:
    given = WorkflowActivation(run_id="r", history_length=events)
    given.timestamp.FromSeconds(at)
    for job in jobs:
        getattr(given.jobs.add(), job).SetInParent()
    return given


@pytest.mark.parametrize(
    ("given", "released"),
    [
        ([_given(3, 1, "initialize_workflow"), _given(9, 2, "resolve_activity")], []),
        ([_given(3, 1, "initialize_workflow"), _given(3, 1, "query_workflow")], []),
        # The events are those of what the task before has ordered.
        ([_given(3, 1, "initialize_workflow"), _given(5, 1, "query_workflow")], []),
        # A local activity has come to its end.
        ([_given(3, 1, "initialize_workflow"), _given(3, 1, "resolve_activity")], []),
        (
            [_given(3, 1, "initialize_workflow"), _given(8, 1, "resolve_activity"), _given(8, 1, "query_workflow")],
            ["r"],
        ),
        ([_given(3, 1, "initialize_workflow"), _given(6, 1, "signal_workflow")], ["r"]),
    ],
)
def test_only_steps_outside_of_a_workflow_task_release(given: list[WorkflowActivation], released: list[str]) -> None:
    asked: list[str] = []
    conversation: Any = _ByWorkflowTasks(_Conversation(), asked.append)  # type: ignore[arg-type]
    assert [conversation.activate(one) for one in given] == [one.history_length for one in given]
    assert asked == released
