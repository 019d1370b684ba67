"""Limits and durations as a conversation meets them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from everturn import Client, Limits, tool
from everturn.testing import ScriptedModel, call, fail, say
from tests.support.agents import agent_on, hosting
from tests.support.waiting import eventually

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


@pytest.mark.parametrize("conclude", [True, False])
async def test_a_turn_that_is_resumed_after_the_limit_of_time_concludes(
    client: Client, scripted: Scripted, conclude: bool, cached_conversations: int
) -> None:
    asked: list[bool] = []
    fixed = False

    def script(messages: list[dict[str, Any]]) -> Any:
        asked.append(any("conclude now" in str(message.get("content")) for message in messages))
        return say("That is all.") if fixed else fail(400, body={"error": {"message": "bad things"}})

    agent, limits = agent_on(scripted(script)), Limits(max_duration=timedelta(seconds=2), conclude=conclude)
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Go", limits=limits)

        async def at_rest() -> str:
            state = (await conversation.status()).state
            return state if state in ("stalled", "ended") else ""

        found = await eventually(at_rest)
        description = await client.temporal.get_workflow_handle(conversation.id).describe()
        too_late = description.start_time + limits.max_duration
        await eventually(lambda: datetime.now(UTC) > too_late, what="its limit of time has passed")
        fixed = True
        if found == "stalled":  # on a slow machine it may have come to its limit by itself
            await conversation.resume()
        outcome = await conversation.outcome()
    assert (outcome.status, outcome.reason) == ("limit_reached", "the limit of 0:00:02")
    assert outcome.text == ("That is all." if conclude else "")
    assert asked[-1:] in ([conclude], [])


async def test_a_tool_may_take_for_ever(client: Client, scripted: Scripted) -> None:
    patient = tool(lambda: "done", name="patient", timeout=timedelta.max, patience=timedelta.max)
    agent = agent_on(scripted([call("patient"), "Done."]), tools=[patient])
    async with hosting(client, agent):
        assert (await client.run(agent, "Go")).text == "Done."
