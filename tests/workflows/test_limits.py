"""Limits and durations as a conversation meets them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from everturn import Client, Limits, tool
from everturn.testing import ScriptedModel, call
from tests.support.agents import agent_on, hosting

Scripted = Callable[..., ScriptedModel]


@tool
def again() -> str:
    return "more"


async def test_a_limit_of_one_conversation_leaves_its_agents_others_as_they_are(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    model = scripted([call("again"), call("again"), call("again"), "Done."])
    agent = agent_on(model, tools=[again], limits=Limits(max_tool_calls=2, conclude=False))
    async with hosting(client, agent, cached_conversations=cached_conversations):
        outcome = await client.run(agent, "Go", limits=Limits(max_turns=50))
    assert (outcome.status, outcome.reason, outcome.turns) == ("limit_reached", "the limit of 2 tool calls", 2)


async def test_a_limit_that_is_set_to_none_is_lifted(client: Client, scripted: Scripted) -> None:
    model = scripted([call("again"), call("again"), call("again"), "Done."])
    agent = agent_on(model, tools=[again], limits=Limits(max_tool_calls=2, conclude=False))
    async with hosting(client, agent):
        outcome = await client.run(agent, "Go", limits=Limits(max_tool_calls=None))
    assert (outcome.status, outcome.tool_calls) == ("completed", 3)


async def test_a_tool_may_take_for_ever(client: Client, scripted: Scripted) -> None:
    patient = tool(lambda: "done", name="patient", timeout=timedelta.max, patience=timedelta.max)
    agent = agent_on(scripted([call("patient"), "Done."]), tools=[patient])
    async with hosting(client, agent):
        assert (await client.run(agent, "Go")).text == "Done."
