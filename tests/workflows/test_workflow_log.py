"""Logs from workflow code: once, and never on replay."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest
from temporalio import workflow
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from everturn.devserver import DevServer
from everturn.logs import workflow_log


@workflow.defn(name="Logging")
class Logging:
    @workflow.run
    async def run(self) -> None:
        workflow_log("conversation.started", agent="clerk")
        await workflow.sleep(timedelta(milliseconds=10))
        workflow_log("turn.finished", level="warning", turn=1)
        await workflow.sleep(timedelta(milliseconds=10))


@pytest.mark.parametrize("runner", [SandboxedWorkflowRunner(), UnsandboxedWorkflowRunner()], ids=["sandboxed", "bare"])
async def test_each_line_comes_once_though_every_step_replays(
    runner: WorkflowRunner, caplog: pytest.LogCaptureFixture
) -> None:
    """In the sandbox too: importing the logs there must be harmless."""
    caplog.set_level(logging.INFO, logger="everturn.workflow")
    async with DevServer() as server:
        client = await Client.connect(server.address)
        async with Worker(client, task_queue="q", workflows=[Logging], workflow_runner=runner, max_cached_workflows=0):
            await client.execute_workflow("Logging", id="order-81", task_queue="q")
    assert [record.getMessage() for record in caplog.records if record.name == "everturn.workflow"] == [
        "conversation.started conversation='order-81' agent='clerk'",
        "turn.finished conversation='order-81' turn=1",
    ]
