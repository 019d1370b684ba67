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

from everturn import Client, Conversation, Deployment, tool
from everturn.client import pollers
from everturn.client import stuck as stuck_conversations
from everturn.errors import Unreachable
from everturn.testing import ScriptedModel, call
from everturn.worker.deployment import Versioning
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.waiting import WAIT_SECONDS, eventually, waiting


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
            await client.temporal.workflow_service.set_worker_deployment_current_version(request, retry=True)
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
        assert await asyncio.wait_for(conversation.reply(), WAIT_SECONDS) == f"The {who} one."
        described = await client.temporal.get_workflow_handle(conversation.id).describe()
        assert described.raw_description.workflow_execution_info.first_run_id != described.run_id


async def test_a_conversation_that_is_pinned_to_a_version_that_nobody_runs_is_stuck_and_not_idle(
    client: Client, scripted: Callable[..., ScriptedModel], bounds: Bounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = (Deployment(name=client.task_queue, build_id=name, versioning="pinned") for name in ("old", "new"))
    agent = agent_on(scripted(lambda _: "Hi."), name=client.task_queue)

    async def listed() -> list[tuple[str, str]]:
        return [
            (conversation.status, conversation.trouble) async for conversation in client.conversations(agent=agent.name)
        ]

    begun: list[Conversation] = []

    async def on(version: Deployment) -> Conversation:
        await make_current(client, version)
        conversation = await client.start(agent, "Hi", keep_open=timedelta(minutes=5))
        begun.append(conversation)
        await conversation.reply()
        return conversation

    async with hosting(client, agent, deployment=old):
        stuck = await on(old)
        await eventually(lambda: _is(listed(), [("idle", "")]))
        assert await client.count(agent.name) == {"idle": 1}
    async with hosting(client, agent, deployment=new):
        await eventually(lambda: _runs_on(client, on, new), what="conversations begin on the new version")
        others = len(begun) - 1  # of those, the index may not know all yet
        # The server remembers a poller for minutes.
        polling = pollers.find_pollers

        async def without_old(*args: Any) -> Any:
            return [one for one in await polling(*args) if one.deployment_options.build_id != "old"]

        monkeypatch.setattr(stuck_conversations, "find_pollers", without_old)
        await eventually(lambda: _counts(client, agent.name, {"idle": others, "stuck": 1}))
        conversations = {conversation.id: conversation async for conversation in client.conversations(agent=agent.name)}
        assert conversations[stuck.id].status == "stuck"
        assert f"pinned to worker version {client.task_queue}:old" in conversations[stuck.id].trouble
        assert [conversation.id async for conversation in client.conversations(agent=agent.name, status="stuck")] == [
            stuck.id
        ]
        assert stuck.id not in [
            conversation.id async for conversation in client.conversations(agent=agent.name, status="idle")
        ]
        bounds(answer_seconds=0.5)
        with pytest.raises(Unreachable, match=f"is stuck: it is pinned to worker version {client.task_queue}:old"):
            await stuck.status()
        monkeypatch.undo()
    async with hosting(client, agent, deployment=old):
        await stuck.close()
        await stuck.outcome()


async def _runs_on(client: Client, begin: Callable[[Deployment], Any], version: Deployment) -> bool:
    described = await client.temporal.get_workflow_handle((await begin(version)).id).describe()
    info = described.raw_description.workflow_execution_info.versioning_info
    return bool(info.deployment_version.build_id == version.build_id)


async def _counts(client: Client, agent: str, expected: dict[str, int]) -> bool:
    return await client.count(agent) == expected


async def _is(found: Any, expected: list[tuple[str, str]]) -> bool:
    return bool(await found == expected)
