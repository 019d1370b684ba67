"""An operator resets a conversation to its last workflow task: it goes on from there, with the same transcript."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import PauseActivityRequest

from everturn import Client, tool
from everturn.testing import ScriptedModel, call
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.operators import reset_to, reset_to_the_last_workflow_task
from tests.support.scripts import ONE
from tests.support.tools import refund
from tests.support.waiting import eventually, reaches, waiting

Scripted = Callable[..., ScriptedModel]


@pytest.mark.long
async def test_a_conversation_that_is_reset_goes_on_with_its_transcript(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    model = scripted(["Hello.", ONE, "Refunded.", "Bye."])
    agent = agent_on(model, tools=[refund])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Hi", keep_open=timedelta(minutes=1))
        await conversation.reply()
        await conversation.send("Refund it")
        await waiting(conversation)
        await reset_to_the_last_workflow_task(client, conversation)
        await waiting(conversation)
        await conversation.approve()
        assert await conversation.reply() == "Refunded."
        await reaches(conversation, "idle")  # the workflow task behind the reply is done, too
        await reset_to_the_last_workflow_task(client, conversation)
        await conversation.send("Bye")
        assert await conversation.reply() == "Bye."
        roles = [message.role for message in await conversation.transcript()]
        assert roles == ["user", "assistant", "user", "assistant", "tool", "assistant", "user", "assistant"]
    assert len(model.requests) == 4, "no model call was made again"


# ---------------------------------------------------------------- what ran is not run again by itself


def payer() -> tuple[list[str], Any]:
    paid: list[str] = []

    @tool(effect="once")
    def pay(order: str) -> str:
        paid.append(order)
        return f"paid {order}"

    return paid, pay


PAY = [call("pay", {"order": "81"}, id="a"), "Paid.", [call("pay", {"order": "82"}, id="b")], "Paid, too."]


@pytest.mark.parametrize("to", [0, 1], ids=["before the model was asked", "before the tool ran"])
async def test_a_once_call_that_ran_before_a_reset_waits_for_a_person(
    client: Client, scripted: Scripted, cached_conversations: int, to: int
) -> None:
    paid, pay = payer()
    agent = agent_on(scripted(PAY), tools=[pay])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Pay 81", keep_open=timedelta(minutes=1))
        assert await conversation.reply() == "Paid."
        for resets in (1, 2):  # the second goes back behind the first
            await reset_to(client, conversation, task=to)
            assert await waiting(conversation) == ("a",)
            (waits,) = (await conversation.status()).waiting
            assert waits.why.startswith(
                "outcome unknown: the conversation was reset, and pay ran in the part that was undone"
            )
            assert paid == ["81"], resets
        await conversation.approve("a")
        assert await conversation.reply() == "Paid."
        assert paid == ["81", "81"], "a person said so"
        await conversation.send("And 82")
        assert await conversation.reply() == "Paid, too."
    assert paid == ["81", "81", "82"], "what is new needs nobody"


async def test_a_once_call_that_a_reset_leaves_done_stays_done(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    paid, pay = payer()
    agent = agent_on(scripted(PAY), tools=[pay])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Pay 81", keep_open=timedelta(minutes=1))
        assert await conversation.reply() == "Paid."
        await reaches(conversation, "idle")
        await reset_to_the_last_workflow_task(client, conversation)
        await conversation.send("And 82")
        assert await conversation.reply() == "Paid, too."
    assert paid == ["81", "82"]


async def test_a_once_call_that_ran_in_a_run_behind_the_one_that_is_reset_waits_for_a_person(
    client: Client, scripted: Scripted, bounds: Bounds
) -> None:
    """The first run of two is reset, and its new one continues as new before the call comes again."""
    bounds(events=5)
    paid, pay = payer()

    @tool(effect="read")
    def look() -> str:
        return "seen"

    agent = agent_on(scripted([call("look"), call("pay", {"order": "81"}, id="a"), "Paid."]), tools=[look, pay])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Pay 81")
        await conversation.outcome()
        handle = client.temporal.get_workflow_handle(conversation.id)
        first = (await handle.describe()).raw_description.workflow_execution_info.first_run_id
        await reset_to(client, conversation, task=0, run_id=first)
        assert await waiting(conversation) == ("a",)
        await conversation.answer("a", "it was paid")
        assert await conversation.reply() == "Paid."
    assert paid == ["81"]


async def test_a_once_call_whose_activity_an_operator_pauses_is_not_run_again_by_itself(
    client: Client, scripted: Scripted
) -> None:
    """What `temporal activity pause` does: the worker stops the run, and Temporal would begin another after unpause."""
    began: list[str] = []

    @tool(effect="once")
    async def pay(order: str) -> str:
        began.append(order)
        await asyncio.sleep(60)
        return f"paid {order}"

    agent = agent_on(scripted([call("pay", {"order": "81"}, id="a"), "Done."]), tools=[pay])
    async with hosting(client, agent, drain_timeout=timedelta(0)):
        conversation = await client.start(agent, "Pay 81")
        await eventually(lambda: began)
        await client.temporal.workflow_service.pause_activity(
            PauseActivityRequest(
                namespace=client.temporal.namespace,
                execution=WorkflowExecution(workflow_id=conversation.id),
                type="pay",
            ),
            retry=True,
        )
        assert await waiting(conversation) == ("a",)
        (waits,) = (await conversation.status()).waiting
        assert waits.why == "outcome unknown: pay was cut short: its activity was paused"
        await conversation.answer("a", "paid by hand")
        assert await conversation.reply() == "Done."
    assert began == ["81"]
