"""What erasing a conversation does not reach, on a real server: it is named."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from uuid import uuid4

import pytest
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Schedule, ScheduleActionStartWorkflow, ScheduleSpec
from temporalio.worker import Worker

from everturn import Client, EverturnPlugin, tool
from everturn.client.out_of_reach import named_in
from everturn.devserver import DevServer
from everturn.history import event_types
from everturn.testing import ScriptedModel, call
from tests.support.agents import agent_on, hosting
from tests.support.shell import Shell
from tests.support.waiting import eventually
from tests.workflows import application

Scripted = Callable[..., ScriptedModel]


@pytest.fixture
async def keeper(server: DevServer) -> Client:
    """A client whose conversations are not replayed at the end: they are gone by then."""
    return await Client.connect(server.address, task_queue=f"q-{uuid4().hex[:8]}")


async def children(client: Client, workflow_id: str) -> list[str]:
    history = await client.temporal.get_workflow_handle(workflow_id).fetch_history()
    return [
        event.child_workflow_execution_started_event_attributes.workflow_execution.workflow_id
        for event in history.events
        if event.HasField("child_workflow_execution_started_event_attributes")
    ]


async def test_a_workflow_of_the_application_that_asked_is_named(
    keeper: Client, scripted: Scripted, shell: Shell
) -> None:
    """Its history has the message and the answer."""

    @tool(needs_approval=True)
    def refund(order_id: str) -> str:
        return f"refunded {order_id}"

    agent = agent_on(
        scripted([call("refund", {"order_id": "81"}, id="c1"), "Done."]),
        tools=[refund],
    )
    mine = f"mine-{keeper.task_queue}"
    plugin = EverturnPlugin(agents=[agent], drain_timeout=timedelta(seconds=20))
    async with Worker(keeper.temporal, task_queue=keeper.task_queue, workflows=[application.Returns], plugins=[plugin]):
        result = await keeper.temporal.execute_workflow(
            "Returns", args=["81", True], id=mine, task_queue=keeper.task_queue
        )
    assert result == "Done."
    [conversation_id] = await children(keeper, mine)
    named = f"workflow {mine}, which asked {conversation_id}: it has the message and the answer."
    would = await asyncio.to_thread(shell.run, "erase", conversation_id, "--dry-run")
    assert f"not reached: {named}\n" in would.stdout
    assert (await keeper.erase(conversation_id)).elsewhere == (named,)


async def test_a_workflow_that_sent_messages_and_a_schedule_are_named(keeper: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted(lambda messages: f"Reply {len(messages)}."))
    name = f"daily-{keeper.task_queue}"
    action = ScheduleActionStartWorkflow(
        "Conversation", {"agent": "clerk", "message": "Go"}, id=name, task_queue=keeper.task_queue
    )
    schedule = await keeper.temporal.create_schedule(name, Schedule(action=action, spec=ScheduleSpec()))

    async def begun() -> str:
        return next(iter([conversation.id async for conversation in keeper.conversations(search=name)]), "")

    async with hosting(keeper, agent):
        await schedule.trigger()
        conversation = keeper.conversation(await eventually(begun))
        await conversation.outcome()
        await schedule.delete()
    assert (await keeper.erase(conversation.id)).elsewhere == (
        f"schedule {name}, which started {conversation.id}: it has the message.",
    )


def test_nexus_operations_and_who_is_told_are_named() -> None:
    called = HistoryEvent(event_type=event_types.NEXUS_OPERATION_SCHEDULED)  # type: ignore[arg-type]
    attributes = called.nexus_operation_scheduled_event_attributes
    attributes.endpoint, attributes.service, attributes.operation = "shop", "Shop", "ship"
    assert [entry.words for entry in named_in(called, conversation_id="a")] == [
        "Nexus operation Shop.ship at the endpoint shop, which a called: it was given the call's arguments."
    ]
    sent = HistoryEvent(event_type=event_types.WORKFLOW_EXECUTION_SIGNALED)  # type: ignore[arg-type]
    assert list(named_in(sent, conversation_id="a")) == [], "by a client"
    sent.workflow_execution_signaled_event_attributes.external_workflow_execution.workflow_id = "w"
    assert [entry.words for entry in named_in(sent, conversation_id="a")] == [
        "workflow w, which sent signals to a: it has what they said."
    ]
