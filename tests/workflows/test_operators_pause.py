"""A workflow that an operator has paused with Temporal's own command: it is shown as that, hides no other, and never
counts as over. The SDK has no such status."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest

from everturn import Budget, Client, Conversation, tool
from everturn.client.followed_reply import FollowedReply
from everturn.devserver import DevServer, find_binary
from everturn.errors import Refused, Stalled, Unreachable
from everturn.events import WorkerAwaited
from everturn.testing import ScriptedModel, call
from everturn.worker.deploy_check import find_conflicts
from tests.support.agents import agent_on, hosting
from tests.support.waiting import WAIT_SECONDS, eventually, reaches, waiting

Scripted = Callable[..., ScriptedModel]


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    settings = {"frontend.WorkflowPauseEnabled": "true"}
    async with DevServer(dynamic_config=settings) as server:
        yield await Client.connect(server.address, task_queue="paused", by="tester")


async def operator(client: Client, *words: str, of: str = "workflow") -> str:
    address = client.temporal.service_client.config.target_host
    program = await asyncio.create_subprocess_exec(
        str(await find_binary()),
        *(of, *words, "--address", address),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await program.communicate()
    assert program.returncode == 0, out.decode()
    return out.decode()


async def test_a_workflow_that_an_operator_paused_is_shown_as_that(client: Client, scripted: Scripted) -> None:
    @tool(needs_approval=True)
    def refund() -> str:
        return "Refunded."

    agent = agent_on(
        scripted(lambda messages: "Done." if messages[-1]["role"] == "tool" else call("refund")), tools=[refund]
    )
    async with hosting(client, agent):
        one = await client.start(agent, "Refund.", id="one", keep_open=timedelta(minutes=5))
        two = await client.start(agent, "Refund.", id="two", keep_open=timedelta(minutes=5))
        for conversation in (one, two):
            await waiting(conversation)
        await operator(client, "pause", "-w", "two")

        async def listed() -> dict[str, str]:
            return {conversation.id: conversation.status async for conversation in client.conversations()}

        async def both() -> bool:
            return await listed() == {"one": "awaiting_approval", "two": "paused"}

        await eventually(both)
        (paused,) = [conversation async for conversation in client.conversations(status="paused")]
        assert paused.trouble == (
            "An operator has paused its workflow in Temporal. `temporal workflow unpause --workflow-id two` sets it "
            "going again."
        )
        assert {conversation.id async for conversation in client.conversations(ended=False)} == {"one", "two"}
        assert [conversation.id async for conversation in client.conversations(ended=True)] == []
        assert await client.count() == {"awaiting_approval": 1, "paused": 1}
        status = await two.status()
        assert (status.state, status.cause, len(status.waiting)) == (
            "paused",
            "An operator has paused its workflow in Temporal.",
            1,
        )
        with pytest.raises(Refused, match="still runs"):
            await client.erase("two")
        assert (await client.start(agent, "Refund.", id="two")).id == "two"
        assert {one.conversation_id for one in await client.pause_all("WorkflowId IS NOT NULL")} == {"one", "two"}
        await client.resume_all("WorkflowId IS NOT NULL")
        decisions: list[Callable[[], Any]] = [two.approve, two.close, two.cancel_turn, two.pause]
        for decide in decisions:
            with pytest.raises(Unreachable, match="An operator has paused its workflow") as refused:
                await decide()
            assert "unpause --workflow-id two" in refused.value.cure
        for wait in (two.reply, lambda: client.run(agent, "Refund.", id="two")):
            with pytest.raises(Stalled, match="An operator has paused its workflow") as stalled:
                await asyncio.wait_for(wait(), WAIT_SECONDS)
            assert "unpause --workflow-id two" in stalled.value.cure
        awaited = await asyncio.wait_for(_first_awaited(two), WAIT_SECONDS)
        assert "unpause --workflow-id two" in (awaited.cure or "")
        async with FollowedReply(two) as answer:
            assert answer.rest
            assert (answer.rest.why, answer.rest.cause) == ("stalled", status.cause)
        assert [conflict async for conflict in find_conflicts(client, [agent])] == []
        decided = {call.conversation_id: call.refused for call in await client.approve_all()}
        assert decided.keys() == {"one", "two"}
        assert decided["one"] == ""
        assert "unpause --workflow-id two" in decided["two"]
        await operator(client, "unpause", "-w", "two")
        await reaches(two, "awaiting_approval")
        await two.approve()
        for conversation in (one, two):
            assert await conversation.reply() == "Done."
            await _end(conversation)


async def test_a_budget_that_an_operator_paused_is_read_and_says_so(client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted(["Hello.", "Hello."]))
    await client.set_budget("acme", Budget(tokens_per_day=50))
    async with hosting(client, agent):
        await operator(client, "pause", "-w", "everturn-budget:acme")
        kept = await client.budget("acme")
        assert kept
        assert kept.budget.tokens_per_day == 50
        for budget in (Budget(tokens_per_day=5), None):
            with pytest.raises(Unreachable, match="can't be set: An operator has paused its workflow"):
                await client.set_budget("acme", budget)
        conversation = await client.start(agent, "Hi", tenant="acme")

        async def cause() -> str:
            return (await conversation.status()).cause or ""

        assert "unpause --workflow-id everturn-budget:acme" in await eventually(cause)
        await operator(client, "unpause", "-w", "everturn-budget:acme")
        assert (await conversation.outcome()).text == "Hello."


async def _first_awaited(conversation: Conversation) -> WorkerAwaited:
    async for event in conversation.events():
        if isinstance(event, WorkerAwaited):
            return event
    raise AssertionError("it ended")


async def _end(conversation: Conversation) -> None:
    await conversation.close()
    await conversation.outcome()


async def test_an_activity_that_an_operator_paused_is_the_cause(client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted(["Hello."]))
    conversation = await client.start(agent, "Hi", id="three")
    async with hosting(client, agent, roles="workflows"):  # nobody takes its turn

        async def turn() -> str:
            described = await client.temporal.get_workflow_handle("three").describe()
            return next(
                (pending_activity.activity_id for pending_activity in described.raw_description.pending_activities), ""
            )

        activity_id = await eventually(turn)
        await operator(client, "pause", "--workflow-id", "three", "--activity-id", activity_id, of="activity")

        async def told() -> str:
            return (await conversation.status()).cause or ""

        assert "paused the activity call_model" in await eventually(told)
        assert f"--activity-id {activity_id}" in ((await conversation.status()).cure or "")
        await operator(client, "unpause", "--workflow-id", "three", "--activity-id", activity_id, of="activity")
    await client.temporal.get_workflow_handle("three").terminate()
