"""An application's tests in Temporal's WorkflowEnvironment: the plugin goes onto its client, and time is skipped."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

import everturn
from everturn import Agent, Approvals, EverturnPlugin, tool
from everturn.testing import ScriptedModel, call
from tests.support.agents import agent_on
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
