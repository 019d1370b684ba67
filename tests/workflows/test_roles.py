"""Workers with roles: model turns and tools on task queues of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import timedelta

import pytest
from temporalio.api.enums.v1 import EventType

from everturn import Client, Conversation, tool
from everturn.roles import Role
from everturn.testing import ScriptedModel, call
from tests.support.agents import agent_on, hosting

Scripted = Callable[..., ScriptedModel]


@tool
def look_up(what: str) -> str:
    "Looks something up."
    return f"{what}: 42"


@tool(local=True, effect="read", timeout=timedelta(seconds=5))
def quick(what: str) -> str:
    "Looks something up, here."
    return f"{what}: 43"


async def beside(client: Client) -> Client:
    """A client for another worker: the SDK lets one have only one."""
    address = client.temporal.service_client.config.target_host
    return await Client.connect(address, task_queue=client.task_queue, by="tester")


async def scheduled(conversation: Conversation) -> list[tuple[str, str]]:
    """Its activities, each with the end of its task queue's name."""
    handle = conversation._client.temporal.get_workflow_handle(conversation.id)
    found = []
    async for event in handle.fetch_history_events():
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            about = event.activity_task_scheduled_event_attributes
            queue = about.task_queue.name.removeprefix(conversation._client.task_queue)
            found.append((about.activity_type.name, queue))
    return found


async def kinds(conversation: Conversation) -> Counter[str]:
    handle = conversation._client.temporal.get_workflow_handle(conversation.id)
    return Counter([EventType.Name(event.event_type) async for event in handle.fetch_history_events()])


CALLS = [call("look_up", {"what": "a"}, id="a1"), "Done."]


@pytest.mark.parametrize(
    ("fleet", "queues"),
    [
        ((("workflows",), ("models",), ("tools",)), ("-models", "-tools")),
        ((("workflows", "tools"), ("models",)), ("-models", "")),
        ((("workflows", "models"), ("tools",)), ("", "-tools")),
        ((None,), ("", "")),
    ],
    ids=["all apart", "models apart", "tools apart", "one queue"],
)
async def test_each_activity_goes_to_the_workers_of_its_role(
    client: Client,
    scripted: Scripted,
    cached_conversations: int,
    fleet: tuple[tuple[Role, ...] | None, ...],
    queues: tuple[str, str],
) -> None:
    agent = agent_on(scripted(CALLS), tools=[look_up])
    async with AsyncExitStack() as stack:
        for roles in fleet:
            worker = hosting(await beside(client), agent, roles=roles, cached_conversations=cached_conversations)
            await stack.enter_async_context(worker)
        conversation = await client.start(agent, "Go.")
        assert (await conversation.outcome()).text == "Done."
    models, tools = queues
    assert await scheduled(conversation) == [("call_model", models), ("look_up", tools), ("call_model", models)]


async def test_roles_cost_no_event(client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted(CALLS * 2), tools=[look_up])
    async with hosting(await beside(client), agent):
        one = await client.start(agent, "Go.")
        await one.outcome()
    fleet: list[tuple[Role]] = [("workflows",), ("models",), ("tools",)]
    async with AsyncExitStack() as stack:
        for roles in fleet:
            await stack.enter_async_context(hosting(await beside(client), agent, roles=roles))
        other = await client.start(agent, "Go.")
        await other.outcome()
    assert await kinds(one) == await kinds(other)


async def test_a_local_tool_runs_where_its_conversation_is(client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted([call("quick", {"what": "a"}, id="a1"), "Done."]), tools=[quick])
    workflows, models = (
        hosting(await beside(client), agent, roles=["workflows"]),
        hosting(await beside(client), agent, roles=["models"]),
    )
    async with workflows, models:
        conversation = await client.start(agent, "Go.")
        assert (await conversation.outcome()).text == "Done."
    assert await scheduled(conversation) == [("call_model", "-models"), ("call_model", "-models")]


async def test_a_conversation_goes_on_when_its_fleet_gets_roles_and_when_it_loses_them(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    agent = agent_on(scripted(["One.", "Two.", "Three."]), tools=[look_up])
    conversation = await client.start(agent, "1", keep_open=timedelta(minutes=5))
    async with hosting(await beside(client), agent, cached_conversations=cached_conversations):
        assert await conversation.reply() == "One."
    models = hosting(await beside(client), agent, roles=["models"])
    apart = hosting(
        await beside(client), agent, roles=["workflows", "tools"], cached_conversations=cached_conversations
    )
    async with models, apart:
        await conversation.send("2")
        assert await conversation.reply() == "Two."
    async with hosting(await beside(client), agent, cached_conversations=cached_conversations):
        await conversation.send("3")
        assert await conversation.reply() == "Three."
        await conversation.close()
        await conversation.outcome()
    assert [queue for _, queue in await scheduled(conversation)] == ["", "-models", ""]
