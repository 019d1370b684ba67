"""A bare workflow that waits for a signal: what Temporal itself holds for one that waits."""

from __future__ import annotations

from temporalio import workflow
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker


@workflow.defn
class FloorWaiting:
    def __init__(self) -> None:
        self.decided = False

    @workflow.run
    async def run(self, _: str) -> str:
        await workflow.wait_condition(lambda: self.decided)
        return ""

    @workflow.signal
    def decide(self) -> None:
        self.decided = True

    @workflow.query
    def status(self) -> dict[str, str]:
        return {"state": "awaiting_approval"}


async def serve(address: str) -> None:
    """Without Temporal's sandbox, as everturn's conversations: that takes more for each workflow."""
    client = await Client.connect(address)
    runner = UnsandboxedWorkflowRunner()
    await Worker(client, task_queue="floor_waiting", workflows=[FloorWaiting], workflow_runner=runner).run()
