"""Replayers for the contestants that run in this environment."""

from __future__ import annotations

from temporalio.worker import Replayer, UnsandboxedWorkflowRunner

from benchmarks.contestants.floor import Floor
from everturn.storage.data_converter import data_converter
from everturn.workflows.conversation import ConversationWorkflow


def replayer(contestant: str) -> Replayer:
    """As the contestant's worker is set up."""
    if contestant == "everturn":
        runner = UnsandboxedWorkflowRunner()
        return Replayer(
            workflows=[ConversationWorkflow], unsandboxed_workflow_runner=runner, data_converter=data_converter
        )
    if contestant == "floor_bare":
        return Replayer(workflows=[Floor], workflow_runner=UnsandboxedWorkflowRunner())
    return Replayer(workflows=[Floor])
