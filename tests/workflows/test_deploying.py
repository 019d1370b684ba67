"""docs/howto/deploy-with-worker-versioning.md, with its own commands: what a conversation sees of a new version, and on
which one it begins."""

from __future__ import annotations

import asyncio
import re
import shlex
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest, DescribeTaskQueueResponse

from everturn import Agent, Client, Conversation, Deployment, Model, tool
from everturn.devserver import DevServer
from everturn.testing import ScriptedModel, call
from everturn.worker.deployment import Versioning
from tests.support.agents import hosting
from tests.support.doc_pages import ROOT, blocks_of
from tests.support.waiting import eventually, waiting

OLD, NEW = "2026-03-01", "2026-04-01"

COMMANDS = [
    line
    for block in blocks_of(ROOT / "docs/howto/deploy-with-worker-versioning.md")
    for line in block.text.splitlines()
    if block.language == "sh" and line.startswith("temporal ")
]


async def type_in(server: DevServer, beginning: str, /, build_id: str = "", **names: str) -> tuple[int, str]:
    """The page's command that begins so, with this test's names in it: exit status and output."""
    command = next(line for line in COMMANDS if line.startswith(beginning) and build_id in line)
    for name, mine in names.items():
        command = re.sub(rf"\b{name.replace('_', '-')}\b", mine, command)
    program = str(Path(sys.executable).parent / "temporal")
    process = await asyncio.create_subprocess_exec(
        program, *shlex.split(command)[1:], "--address", server.address,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    out, _ = await process.communicate()
    return process.returncode or 0, out.decode()


@tool
def audit() -> str:
    return "audited"


def agent_of(version: str, model: ScriptedModel) -> Agent:
    @tool(needs_approval=True)
    def sign() -> str:
        return f"signed by {version}"

    return Agent(
        "clerk",
        model=Model(f"scripted:{version}", base_url=model.base_url),
        instructions=f"You are {version}.",
        tools=[sign] if version == OLD else [sign, audit],
    )


def seen(body: dict[str, Any]) -> set[str]:
    """Whose instructions, tools and model a model was asked with."""
    tools = [tool["function"]["name"] for tool in body["tools"]]
    instructions = str(body["messages"][0]["content"])
    return {
        next(version for version in (OLD, NEW) if version in instructions),
        NEW if "audit" in tools else OLD,
        body["model"],
    }


async def make_current(server: DevServer, client: Client, build_id: str) -> None:
    """The deployment is called as the task queue is. Returns once the queue knows, which may be after the command."""

    async def command_worked() -> bool:
        command = "temporal worker deployment set-current-version"
        return (await type_in(server, command, build_id, clerks=client.task_queue))[0] == 0

    async def queue_knows() -> bool:
        kinds = (TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW, TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY)
        infos = [(await _describe_queue(client, kind)).versioning_info for kind in kinds]
        return all(
            info.current_deployment_version.build_id == build_id and not info.ramping_deployment_version.build_id
            for info in infos
        )

    await eventually(command_worked, what="the server has seen a worker of this version")
    await eventually(queue_knows, what=f"the queue knows that {build_id} is current")


@pytest.mark.long
@pytest.mark.parametrize("versioning", ["pinned", "auto_upgrade"])
async def test_what_a_running_conversation_sees_of_a_new_version(
    server: DevServer, client: Client, scripted: Callable[..., ScriptedModel], versioning: Versioning
) -> None:
    bodies: dict[str, list[dict[str, Any]]] = {}

    def reply(messages: list[dict[str, Any]], body: dict[str, Any]) -> Any:
        question = next(str(message["content"]) for message in reversed(messages) if message["role"] == "user")
        bodies.setdefault(question, []).append(body)
        return call("sign") if question == "Sign" and messages[-1]["role"] == "user" else "Done."

    model = scripted(reply)
    mine = client.task_queue

    async def ask(conversation: Conversation, text: str) -> set[str]:
        await conversation.send(text)
        await conversation.reply()
        return seen(bodies[text][-1])

    async with AsyncExitStack() as stack:
        for build_id in (OLD, NEW):
            deployment = Deployment(name=mine, build_id=build_id, versioning=versioning)
            await stack.enter_async_context(hosting(client, agent_of(build_id, model), deployment=deployment))
            if build_id == OLD:
                await make_current(server, client, OLD)
                talks = await client.start("clerk", "Hello", keep_open=timedelta(minutes=5))
                await talks.reply()
                signs = await client.start("clerk", "Sign")
                [waits] = await waiting(signs)
        assert seen(bodies["Hello"][-1]) == {OLD}
        ramping = "temporal worker deployment set-ramping-version"
        await eventually(lambda: _worked(type_in(server, ramping, NEW, clerks=mine)))
        await make_current(server, client, NEW)
        for _ in range(3):  # a single one may be among the ramp's 10 %
            await (await client.start("clerk", "Anybody?")).outcome()
        assert [seen(body) for body in bodies["Anybody?"]] == [{NEW}] * 3
        stays, moves = (OLD, NEW) if versioning == "pinned" else (NEW, OLD)
        assert await ask(talks, "What now?") == {stays}
        await signs.approve(waits)
        await signs.outcome()
        assert f"signed by {stays}" in str(await signs.transcript())
        assert await _last_version(client, signs) == stays

        # And now the other way round, for this one.
        if versioning == "pinned":
            overridden = await type_in(server, "temporal workflow update-options", "order-81", order_81=talks.id)
        else:
            overridden = await type_in(
                server, "temporal workflow update-options", "order-82", order_82=talks.id, clerks=mine
            )
        assert overridden[0] == 0, overridden[1]
        assert await ask(talks, "And now?") == {moves}
        described = await type_in(server, "temporal worker deployment describe-version", OLD, clerks=mine)
        assert described[0] == 0, described[1]
        assert "DrainageStatus" in described[1]
        await talks.close()
        await talks.outcome()


@pytest.mark.parametrize("versioning", ["pinned", "auto_upgrade"])
async def test_a_version_that_is_not_current_gets_no_conversation_of_its_own_process(
    server: DevServer, client: Client, scripted: Callable[..., ScriptedModel], versioning: Versioning
) -> None:
    bodies: list[dict[str, Any]] = []

    def reply(_: list[dict[str, Any]], body: dict[str, Any]) -> str:
        bodies.append(body)
        return "Done."

    model = scripted(reply)
    # Like a process of the new version: the SDK hands an eager start to a worker of the starter's connection.
    new_process = await Client.connect(server.address, task_queue=client.task_queue)
    old, new = (Deployment(name=client.task_queue, build_id=build_id, versioning=versioning) for build_id in (OLD, NEW))
    async with hosting(client, agent_of(OLD, model), deployment=old):
        await make_current(server, client, OLD)
        async with hosting(new_process, agent_of(NEW, model), deployment=new):
            conversation = await new_process.start("clerk", "Hello")
            await conversation.outcome()
            assert await _last_version(client, conversation) == OLD
    assert [seen(body) for body in bodies] == [{OLD}]


async def _worked(command: Any) -> bool:
    return bool((await command)[0] == 0)


async def _describe_queue(client: Client, kind: TaskQueueType.ValueType) -> DescribeTaskQueueResponse:
    queue = TaskQueue(name=client.task_queue)
    request = DescribeTaskQueueRequest(namespace=client.temporal.namespace, task_queue=queue, task_queue_type=kind)
    return await client.temporal.workflow_service.describe_task_queue(request, retry=True)


async def _last_version(client: Client, conversation: Conversation) -> str:
    """The version of the worker that took its last step."""
    history = await client.temporal.get_workflow_handle(conversation.id).fetch_history()
    tasks = [event.workflow_task_completed_event_attributes for event in history.events]
    return [task.deployment_version.build_id for task in tasks if task.deployment_version.build_id][-1]
