"""everturn in a user's own workflow file, which Temporal loads in its sandbox."""

from __future__ import annotations

from uuid import uuid4

from temporalio.worker import Worker

import everturn
from everturn import Client
from tests.workflows.sandboxed import Mine, agent


async def test_a_users_sandboxed_workflow_file_may_define_agents_and_tools(client: Client) -> None:
    queue = f"mine-{uuid4().hex}"
    async with Worker(client.temporal, task_queue=queue, workflows=[Mine]):
        said = await client.temporal.execute_workflow(Mine.run, "says", id=queue, task_queue=queue)
    assert said == "clerk says ToolFailed"
    assert isinstance(agent, everturn.Agent)
