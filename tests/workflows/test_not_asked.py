"""What a program did not think of stalls a conversation, with a cause. It was retried without an end, and unseen."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from everturn import Agent, Client, Conversation, Model, ModelSettings
from everturn.testing import ScriptedModel
from tests.support.agents import agent_on, hosting
from tests.support.waiting import eventually

Scripted = Callable[..., ScriptedModel]


async def cause_of_the_stall(conversation: Conversation) -> str:
    async def cause() -> str:
        status = await conversation.status()
        return (status.cause or "") if status.state == "stalled" else ""

    return str(await eventually(cause, what="it is stalled"))


@pytest.mark.parametrize(
    ("name", "value"), [("X-Name", "Zoë"), ("X-Name", "a\r\nb: c"), ("Content-Length", "5"), ("a b", "c")]
)
async def test_a_header_that_none_can_be_is_said(client: Client, scripted: Scripted, name: str, value: str) -> None:
    settings = ModelSettings(extra={"extra_headers": {name: value}})
    async with hosting(client, agent_on(scripted(["Hello."]), settings=settings)):
        conversation = await client.start("clerk", "Go")
        cause = await cause_of_the_stall(conversation)
    assert "extra_headers" in cause
    assert repr(name) in cause


async def test_a_request_that_can_not_be_written_stalls(client: Client, scripted: Scripted) -> None:
    model = Model("openai:demo", base_url=scripted(["Hello."]).base_url)
    half_a_character = {"type": "object", "properties": {"\ud800": {}}}
    agent = Agent("clerk", model=model, tools=[{"name": "lookup", "parameters": half_a_character, "strict": True}])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        assert "The model could not be asked" in await cause_of_the_stall(conversation)
