"""What a conversation costs on Temporal Cloud: counted from its histories, as the how-to page says."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from benchmarks.actions import actions
from everturn import Client, tool
from everturn.testing import ScriptedModel, call
from tests.support.agents import agent_on, hosting
from tests.support.tools import refund
from tests.support.waiting import waiting

Scripted = Callable[..., ScriptedModel]


@tool(local=True, effect="read", timeout=timedelta(seconds=5))
def note(text: str) -> str:
    return text


@tool
def look_up(word: str) -> str:
    return word


async def test_a_turn_and_a_call_are_an_action_each(client: Client, scripted: Scripted) -> None:
    agent = agent_on(
        scripted([call("look_up", {"word": "a"}), call("look_up", {"word": "b"}), "Done."]), tools=[look_up]
    )
    async with hosting(client, agent):
        outcome = await client.run(agent, "Go.", id=f"{client.task_queue}-short")
    assert outcome.turns == 3
    counted = await actions(client.temporal, f"{client.task_queue}-short")
    assert counted == {"starts": 1, "activities": 5, "search attributes": 1}


async def test_a_wait_costs_its_decision_and_local_calls_of_one_task_are_one(
    client: Client, scripted: Scripted
) -> None:
    first = [call("note", {"text": "a"}), call("note", {"text": "b"}), call("refund", {"order_id": "81", "cents": 5})]
    helper = agent_on(scripted(["Written down."]), name="helper")
    agent = agent_on(scripted([first, call("helper", {"message": "?"}), "Done.", "Bye."]), tools=[note, refund, helper])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go.", keep_open=timedelta(minutes=1))
        await waiting(conversation)
        await conversation.approve()
        assert await conversation.reply() == "Done."
        await conversation.send("Thanks.")
        assert await conversation.reply() == "Bye."
        await conversation.close()
        await conversation.outcome()
    counted = await actions(client.temporal, conversation.id)
    # Two updates: the decision and the close.
    expected = {"starts": 1, "activities": 5, "markers": 1, "sub-agents": 1, "updates": 2, "signals": 1}
    assert {kind: counted[kind] for kind in expected} == expected
    assert set(counted) == {*expected, "timers", "search attributes"}
