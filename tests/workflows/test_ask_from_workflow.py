"""everturn.workflow.ask and start, in an application's own sandboxed workflow."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import WorkflowFailureError
from temporalio.worker import Replayer, Worker

from everturn import Agent, Client, EverturnPlugin, tool
from everturn.testing import ScriptedModel, call, slow
from tests.support.agents import agent_on
from tests.support.operators import reset_to
from tests.support.waiting import eventually, waiting
from tests.workflows import application

Scripted = Callable[..., ScriptedModel]

WORKFLOWS = [
    application.Returns,
    application.Judged,
    application.Says,
    application.Wrong,
    application.GivesUp,
]


@asynccontextmanager
async def working(client: Client, *agents: Agent, cached_conversations: int = 1000) -> AsyncIterator[None]:
    plugin = EverturnPlugin(
        agents=agents, cached_conversations=cached_conversations, drain_timeout=timedelta(seconds=20)
    )
    async with Worker(client.temporal, task_queue=client.task_queue, workflows=WORKFLOWS, plugins=[plugin]):
        yield


async def ended(client: Client, name: str, *args: Any) -> Any:
    """The result of one of the application's workflows, whose history is replayed afterwards."""
    handle = await client.temporal.start_workflow(
        name, args=args, id=f"{client.task_queue}-own", task_queue=client.task_queue
    )
    try:
        return await handle.result()
    finally:
        replayer = Replayer(workflows=WORKFLOWS, plugins=[EverturnPlugin()])
        await replayer.replay_workflow(await handle.fetch_history())


async def child_ids(client: Client) -> list[str]:
    """Of those that have begun: a child that its parent has only asked for is not there yet."""
    history = await client.temporal.get_workflow_handle(f"{client.task_queue}-own").fetch_history()
    return [
        event.child_workflow_execution_started_event_attributes.workflow_execution.workflow_id
        for event in history.events
        if event.HasField("child_workflow_execution_started_event_attributes")
    ]


def refunding(scripted: Scripted) -> Agent:
    @tool(needs_approval=True)
    def refund(order_id: str) -> str:
        return f"refunded {order_id}"

    return agent_on(scripted([call("refund", {"order_id": "81"}, id="c1"), "It is refunded."]), tools=[refund])


@pytest.mark.long
async def test_a_workflow_asks_and_a_person_decides_under_the_conversations_own_id(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    async with working(client, refunding(scripted), cached_conversations=cached_conversations):
        handle = await client.temporal.start_workflow(
            "Returns", args=["81", False], id=f"{client.task_queue}-own", task_queue=client.task_queue
        )
        (child_id,) = await eventually(lambda: child_ids(client))
        assert child_id.startswith(f"{handle.id}.clerk-")
        conversation = client.conversation(child_id)
        (call_id,) = await waiting(conversation)
        assert await eventually(lambda: handle.query("told")) == [f"{child_id} {call_id}"], "its parent was told, once"
        await conversation.approve(call_id)
        assert await handle.result() == "It is refunded."
        described = await client.temporal.get_workflow_handle(child_id).describe()
    assert described.parent_id == handle.id
    await Replayer(workflows=WORKFLOWS).replay_workflow(await handle.fetch_history())


@pytest.mark.long
async def test_a_workflow_may_decide_itself_once_it_is_told(client: Client, scripted: Scripted) -> None:
    async with working(client, refunding(scripted)):
        assert await ended(client, "Returns", "81", True) == "It is refunded."
        (child_id,) = await child_ids(client)
        (decided,) = [event async for event in client.conversation(child_id).events() if event.kind == "decided"]
    assert decided.by == f"Returns {client.task_queue}-own"
    assert decided.note == "as always"


@pytest.mark.long
async def test_a_workflow_is_told_of_what_waits_in_an_agent_that_its_agent_asks(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    @tool(needs_approval=True)
    def refund(order_id: str) -> str:
        return f"refunded {order_id}"

    cashier = agent_on(scripted([call("refund", {"order_id": "81"}, id="c1"), "Done."]), name="cashier", tools=[refund])
    agent = agent_on(
        scripted([call("cashier", {"message": "Refund 81."}, id="a1"), "It is refunded."]), tools=[cashier]
    )
    async with working(client, agent, cached_conversations=cached_conversations):
        handle = await client.temporal.start_workflow(
            "Returns", args=["81", False], id=f"{client.task_queue}-own", task_queue=client.task_queue
        )
        (told,) = await eventually(lambda: handle.query("told"))
        conversation_id, call_id = told.split()
        assert conversation_id.endswith(".a1"), "the cashier's own conversation"
        await client.conversation(conversation_id).approve(call_id)
        assert await handle.result() == "It is refunded."
    await Replayer(workflows=WORKFLOWS).replay_workflow(await handle.fetch_history())


@pytest.mark.long
async def test_a_workflow_that_is_reset_asks_anew_and_the_first_conversation_goes_on(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    async with working(client, refunding(scripted), cached_conversations=cached_conversations):
        handle = await client.temporal.start_workflow(
            "Returns", args=["81", False], id=f"{client.task_queue}-own", task_queue=client.task_queue
        )
        (told,) = await eventually(lambda: handle.query("told"))
        first, call_id = told.split()
        await reset_to(client, client.conversation(handle.id), task=0)

        async def asked_anew() -> str:
            return next((child_id for child_id in await child_ids(client) if child_id != first), "")

        second = await eventually(asked_anew)
        await waiting(client.conversation(second))
        await client.conversation(second).approve(call_id)
        assert await client.temporal.get_workflow_handle(handle.id).result() == "It is refunded."
        assert await waiting(client.conversation(first)) == (call_id,)
        await client.conversation(first).close()
        assert (await client.conversation(first).outcome()).status == "completed"


async def test_the_outcome_has_the_agents_output_type(client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted(['{"order_id": "81", "cents": 3490}']), name="judge", output=application.Invoice)
    async with working(client, agent):
        assert await ended(client, "Judged", "81") == "completed True 3490"


async def test_a_workflow_holds_a_conversation_of_several_messages(client: Client, scripted: Scripted) -> None:
    model = scripted(["Hello.", "Bye."])
    async with working(client, agent_on(model)):
        assert await ended(client, "Says", "Hi", "Goodbye") in ("completed Bye.", "completed Hello.")
        (child_id,) = await child_ids(client)
        transcript = await client.conversation(child_id).transcript()
        memo = await (await client.temporal.get_workflow_handle(child_id).describe()).memo()
    assert [message.text for message in transcript if message.role == "user"] == ["Hi", "Goodbye"]
    assert memo == {"tenant": "acme"}


@pytest.mark.parametrize(
    ("message", "problem"), [("", "The message has no parts"), ("Hi", "JSON does not have: arguments.cents is NaN")]
)
async def test_what_can_not_be_sent_fails_the_workflow_and_is_not_tried_for_ever(
    client: Client, scripted: Scripted, message: str, problem: str
) -> None:
    async with working(client, agent_on(scripted(["Hello."]))):
        with pytest.raises(WorkflowFailureError) as error:
            await ended(client, "Wrong", message)
    assert problem in str(error.value.cause)


@pytest.mark.parametrize("by", ["a timeout", "its cancellation", "its end"])
async def test_a_conversation_is_cancelled_with_the_workflow_that_asked(
    client: Client, scripted: Scripted, by: str
) -> None:
    agent = agent_on(scripted([slow("Hello.", seconds=60)]))
    async with working(client, agent):
        own = f"{client.task_queue}-own"
        handle = await client.temporal.start_workflow(
            "GivesUp", 0.5 if by == "a timeout" else 300.0, id=own, task_queue=client.task_queue
        )
        conversation = client.conversation(f"{own}-talk")
        await eventually(lambda: child_ids(client))
        match by:
            case "a timeout":
                assert await handle.result() == "given up"
            case "its cancellation":
                await handle.cancel()
                with pytest.raises(WorkflowFailureError):
                    await handle.result()
            case _:
                await handle.terminate()
        assert (await conversation.outcome()).status == "cancelled"
