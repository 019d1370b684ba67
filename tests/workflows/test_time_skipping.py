"""An application's tests in Temporal's WorkflowEnvironment: the plugin goes onto its client, and time is skipped."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from pathlib import Path

from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

import everturn
from everturn import Agent, Approvals, EverturnPlugin, tool
from everturn.events import Event
from everturn.testing import ScriptedModel, call
from tests.support.agents import agent_on, hosting
from tests.support.waiting import waiting
from tests.workflows.application import Checkout, Order, Returns, charge

Scripted = Callable[..., ScriptedModel]

SERVER = str(Path(sys.executable).with_name("temporal-test-server"))


def refunding(scripted: Scripted) -> Agent:
    @tool(needs_approval=True)
    def refund(order_id: str) -> str:
        return f"refunded {order_id}"

    script = [call("refund", {"order_id": "81"}, id="c1"), "Nobody said yes."]
    return agent_on(scripted(script), tools=[refund], approvals=Approvals(expire_after=timedelta(days=7)))


async def test_a_week_that_nobody_decides_in_takes_no_time(scripted: Scripted) -> None:
    clerk = refunding(scripted)
    plugin = EverturnPlugin(agents=[clerk], drain_timeout=timedelta(seconds=20))
    began = datetime.now(UTC)
    async with await WorkflowEnvironment.start_time_skipping(
        plugins=[plugin], test_server_existing_path=SERVER
    ) as environment:
        async with Worker(environment.client, task_queue="q", workflows=[Checkout, Returns], activities=[charge]):
            order = await environment.client.execute_workflow(Checkout.run, Order("81", 1), id="own", task_queue="q")
            # Asked by a workflow of the application's.
            asked = await environment.client.execute_workflow(
                Returns.run, args=["81", False], id="asks", task_queue="q"
            )
            # And by a client.
            conversation = await everturn.Client(environment.client, task_queue="q").start(clerk, "Return 81")
            await waiting(conversation)
            await environment.sleep(timedelta(days=7))
            outcome = await conversation.outcome()
        passed = await environment.get_current_time() - began
    assert order == Order("81", 2)
    assert asked == outcome.text == "Nobody said yes."
    assert passed >= timedelta(days=14)


async def test_who_waits_there_for_an_open_conversation_gets_what_it_says(scripted: Scripted) -> None:
    """That server never answers a request that waits for more of a history."""
    agent = agent_on(scripted(lambda messages: f"re: {messages[-1]['content']}"))
    async with await WorkflowEnvironment.start_time_skipping(test_server_existing_path=SERVER) as environment:
        client = everturn.Client(environment.client, task_queue="q")
        async with hosting(client, agent):
            conversation = await client.start(agent, "Hello", keep_open=timedelta(hours=1))
            assert await conversation.reply() == "re: Hello"
            events = conversation.events()
            async with aclosing(events):
                kinds = [event.kind async for event in _until_replied(events)]
            assert kinds[-1] == "replied"
            await conversation.send("More")
            assert await conversation.run_tools([]) == "re: More"
            await conversation.close()
            assert (await conversation.outcome()).text == "re: More"


async def _until_replied(events: AsyncIterator[Event]) -> AsyncIterator[Event]:
    async for event in events:
        yield event
        if event.kind == "replied":
            return


async def test_with_a_clock_of_its_own_for_each_workflow_it_takes_none_either(scripted: Scripted) -> None:
    """`start_time_skipping_v2`: Temporal's own dev server, which has to be told."""
    clerk = refunding(scripted)
    plugin = EverturnPlugin(agents=[clerk], drain_timeout=timedelta(seconds=20))
    began = datetime.now(UTC)
    allowed = ["--dynamic-config-value", "frontend.WorkflowTimeSkippingEnabled=true"]
    async with (
        await WorkflowEnvironment.start_time_skipping_v2(
            plugins=[plugin],
            dev_server_existing_path=str(Path(sys.executable).with_name("temporal")),
            dev_server_extra_args=allowed,
            dev_server_log_level="error",
        ) as environment,
        Worker(environment.client, task_queue="q", workflows=[Checkout, Returns], activities=[charge]),
    ):
        asked = await environment.client.execute_workflow(Returns.run, args=["81", False], id="asks", task_queue="q")
        conversation = await everturn.Client(environment.client, task_queue="q").start(clerk, "Return 81")
        outcome = await conversation.outcome()
        handle = environment.client.get_workflow_handle(conversation.id)
        passed = await environment.get_current_time(handle) - began
    assert asked == outcome.text == "Nobody said yes."
    assert passed >= timedelta(days=7)
