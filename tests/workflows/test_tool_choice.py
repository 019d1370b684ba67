"""A call that is forced, by `tool_choice`, is forced once for each message of a user."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from everturn import Client, ModelSettings, tool
from everturn.testing import ScriptedModel, call
from tests.support.agents import agent_on, hosting

Scripted = Callable[..., ScriptedModel]
NAMED = {"type": "function", "function": {"name": "look"}}


@tool(effect="read")
async def look() -> str:
    return "a cat"


def obedient(messages: list[dict[str, Any]], body: dict[str, Any]) -> Any:
    """A model that calls its tool whenever it is forced to, as all do."""
    return call("look") if body.get("tool_choice") not in (None, "auto", "none") else "A cat."


@pytest.mark.parametrize(("choice", "sent"), [("required", "required"), ("look", NAMED)])
async def test_a_forced_call_is_forced_for_the_first_turn_of_each_answer(
    client: Client, scripted: Scripted, cached_conversations: int, choice: str, sent: Any
) -> None:
    model = scripted(obedient)
    agent = agent_on(model, tools=[look], settings=ModelSettings(tool_choice=choice))
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Look", keep_open=timedelta(minutes=1))
        assert await conversation.reply() == "A cat."
        await conversation.send("Look again")
        assert await conversation.reply() == "A cat."
        await conversation.close()
        outcome = await conversation.outcome()
    assert (outcome.status, outcome.turns) == ("completed", 4)
    assert [body.get("tool_choice") for body in model.requests] == [sent, None, sent, None]


async def test_every_turn_is_forced_if_that_is_asked_for(client: Client, scripted: Scripted) -> None:
    model = scripted([call("look"), call("look"), "A cat."])
    settings = ModelSettings(tool_choice="required", reset_tool_choice=False)
    agent = agent_on(model, tools=[look], settings=settings)
    async with hosting(client, agent):
        await client.run(agent, "Look")
    assert [body["tool_choice"] for body in model.requests] == ["required"] * 3


async def test_no_call_at_all_stays_so_for_every_turn(client: Client, scripted: Scripted) -> None:
    model = scripted(["One.", "Two."])
    agent = agent_on(model, tools=[look], settings=ModelSettings(tool_choice="none"))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Look", keep_open=timedelta(minutes=1))
        await conversation.reply()
        await conversation.send("Look again")
        await conversation.reply()
        await conversation.close()
        await conversation.outcome()
    assert [body["tool_choice"] for body in model.requests] == ["none"] * 2
