"""An idempotency key belongs to one call: every try of it has the same, and no other call ever has it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

from everturn import Client, ToolContext, tool
from everturn.testing import ScriptedModel, call
from everturn.tools.tool import Tool
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.operators import reset_to_the_last_workflow_task
from tests.support.waiting import waiting

Scripted = Callable[..., ScriptedModel]

NUMBERED = "functions.refund:0"
"""A call's id as some providers make it: the first call of every conversation has it."""


def paying(keys: list[str], **options: Any) -> Tool:
    def refund(context: ToolContext) -> str:
        keys.append(context.idempotency_key)
        return "refunded"

    return tool(refund, **options)


async def test_a_conversation_that_is_started_anew_under_its_old_id_has_keys_of_its_own(
    client: Client, scripted: Scripted
) -> None:
    keys: list[str] = []
    script = [call("refund", id=NUMBERED), "Done."] * 2
    agent = agent_on(scripted(script), tools=[paying(keys)])
    name = f"order-{uuid4().hex[:8]}"
    async with hosting(client, agent):
        for _ in range(2):
            await client.run(agent, "Refund", id=name, again=True)
    assert len(set(keys)) == 2
    assert all(key.startswith(f"{name}:") and key.endswith(f":{NUMBERED}") for key in keys)


async def test_a_key_holds_the_first_run_of_the_conversation_through_all_its_runs(
    client: Client, scripted: Scripted, bounds: Bounds, cached_conversations: int
) -> None:
    bounds(events=10)
    keys: list[str] = []
    script = [*(call("refund", id=f"c{number}") for number in range(3)), "Done."]
    agent = agent_on(scripted(script), tools=[paying(keys)])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Refund")
        first = await conversation.latest_run()
        await conversation.outcome()
        assert await conversation.latest_run() != first
    assert keys == [f"{conversation.id}:{first}:c{number}" for number in range(3)]


async def test_every_try_of_a_call_has_its_key_and_so_has_a_run_that_a_person_allowed(
    client: Client, scripted: Scripted
) -> None:
    keys: list[str] = []

    @tool(effect="once", timeout=timedelta(seconds=0.2))
    async def refund(context: ToolContext) -> str:
        import asyncio

        keys.append(context.idempotency_key)
        if len(keys) == 1:
            await asyncio.sleep(60)
        return "refunded"

    agent = agent_on(scripted([call("refund", id="c1"), "Done."]), tools=[refund])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Refund")
        await waiting(conversation)  # its outcome is unknown
        await conversation.approve()
        await conversation.outcome()
    assert len(keys) == 2
    assert len(set(keys)) == 1


async def test_what_runs_again_after_a_reset_has_a_key_of_its_own(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    keys: list[str] = []
    script = [call("refund", id="c1"), call("refund", id="c2"), "Done."]
    agent = agent_on(scripted(script), tools=[paying(keys, needs_approval=True)])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Refund")
        first = await conversation.latest_run()
        await waiting(conversation)
        await conversation.approve("c1")
        await waiting(conversation)
        await reset_to_the_last_workflow_task(client, conversation)
        second = await conversation.latest_run()
        await waiting(conversation)
        await conversation.approve("c2")
        await conversation.outcome()
    assert keys == [f"{conversation.id}:{first}:c1", f"{conversation.id}:{second}:c2"]


async def test_a_fork_has_keys_of_its_own(client: Client, scripted: Scripted) -> None:
    keys: list[str] = []
    script = ["Hello.", call("refund", id=NUMBERED), "Done.", call("refund", id=NUMBERED), "Done."]
    agent = agent_on(scripted(script), tools=[paying(keys)])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Hi", keep_open=timedelta(minutes=1))
        await conversation.reply()
        await conversation.send("Refund")
        await conversation.reply()
        fork = await conversation.fork(at_turn=1)
        await fork.send("Refund")
        await fork.reply()
        for one in (conversation, fork):
            await one.close()
            await one.outcome()
    assert [key.split(":")[0] for key in keys] == [conversation.id, fork.id]
    assert len({key.split(":")[1] for key in keys}) == 2


async def test_a_call_that_the_client_runs_has_such_a_key_too(client: Client, scripted: Scripted) -> None:
    keys: list[str] = []
    refund = paying(keys, runs_on="client")
    agent = agent_on(scripted([call("refund", id=NUMBERED), "Done."] * 2), tools=[refund])
    name = f"order-{uuid4().hex[:8]}"
    async with hosting(client, agent):
        for _ in range(2):
            conversation = await client.start(agent, "Refund", id=name, again=True)
            first = await conversation.latest_run()
            assert await conversation.run_tools([refund]) == "Done."
            await conversation.outcome()
            assert keys[-1] == f"{name}:{first}:{NUMBERED}"
    assert len(set(keys)) == 2
