"""Worker versioning, on the real server: what becomes of conversations when another version is made current."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import pytest
from temporalio.api.workflowservice.v1 import SetWorkerDeploymentCurrentVersionRequest
from temporalio.service import RPCError

from everturn import Client, Deployment, tool
from everturn.testing import ScriptedModel, call
from everturn.worker.deployment import Versioning
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.waiting import eventually, waiting


@tool(needs_approval=True)
def sign() -> str:
    return "signed"


def of_worker(name: str) -> Callable[[list[Any]], Any]:
    """Each version of the agent has a model of its own, so that the reply tells who asked."""
    return lambda messages: call("sign") if len(messages) == 1 else f"The {name} one."


async def make_current(client: Client, deployment: Deployment) -> None:
    request = SetWorkerDeploymentCurrentVersionRequest(
        namespace=client.temporal.namespace, deployment_name=deployment.name, build_id=deployment.build_id
    )

    async def made() -> bool:
        try:
            await client.temporal.workflow_service.set_worker_deployment_current_version(request)
        except RPCError:
            return False  # the server has not seen a worker of this version yet
        return True

    await eventually(made)


async def answered_by(client: Client, name: str) -> bool:
    """Whether that version answers a conversation that begins now: the server takes its time to tell all queues."""
    conversation = await client.start("clerk", "Go")
    await waiting(conversation)
    await conversation.deny()
    return await conversation.reply() == f"The {name} one."


@pytest.mark.parametrize(("versioning", "who"), [("pinned", "old"), ("auto_upgrade", "new")])
async def test_a_pinned_conversation_goes_on_on_the_old_worker_and_others_move(
    client: Client,
    scripted: Callable[..., ScriptedModel],
    bounds: Bounds,
    versioning: Versioning,
    who: str,
) -> None:
    bounds(events=8)  # it is to continue as a new run before it is answered
    async with AsyncExitStack() as stack:
        for name in ("old", "new"):
            version = Deployment(name=client.task_queue, build_id=name, versioning=versioning)
            agent = agent_on(scripted(of_worker(name)), tools=[sign])
            await stack.enter_async_context(hosting(client, agent, deployment=version))
            await make_current(client, version)
            if name == "old":
                conversation = await client.start(agent, "Go")
                await waiting(conversation)
        await eventually(lambda: answered_by(client, "new"), what="conversations begin on the new version")
        await conversation.approve()
        assert await asyncio.wait_for(conversation.reply(), 30) == f"The {who} one."
        described = await client.temporal.get_workflow_handle(conversation.id).describe()
        assert described.raw_description.workflow_execution_info.first_run_id != described.run_id


async def test_a_conversation_that_is_pinned_to_a_version_that_nobody_runs_is_stuck_and_not_idle(
    client: Client, scripted: Callable[..., ScriptedModel], bounds: Bounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = Deployment(name=client.task_queue, build_id="old", versioning="pinned")
    agent = agent_on(scripted(["Hi."]), name=client.task_queue)

    async def listed() -> list[tuple[str, str]]:
        return [(one.status, one.trouble) async for one in client.conversations(agent=agent.name)]

    async with hosting(client, agent, deployment=version):
        await make_current(client, version)
        conversation = await client.start(agent, "Hi", keep_open=timedelta(minutes=5))
        await conversation.reply()
        await eventually(lambda: _is(listed(), [("idle", "")]))
    # The server remembers a poller for minutes.
    bounds(recent_poll_seconds=-1.0)
    [(status, trouble)] = await listed()
    assert status == "stuck"
    assert f"pinned to worker version {client.task_queue}:old" in trouble
    monkeypatch.undo()
    async with hosting(client, agent, deployment=version):
        await conversation.close()
        await conversation.outcome()


async def _is(found: Any, expected: list[tuple[str, str]]) -> bool:
    return bool(await found == expected)
