"""A model that is done and says nothing: asked again, and then taken at its word. What is said of a reply is kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from everturn import Client
from everturn.events import Replied
from everturn.exporting import read_conversation, to_jsonl
from everturn.testing import ScriptedModel, call, garbage, say
from tests.support.agents import agent_on, hosting

Scripted = Callable[..., ScriptedModel]


def look() -> str:
    """Looks."""
    return "seen"


@pytest.mark.parametrize("nothing", [say(""), say("", thinking="Hm.")], ids=["no word", "only thoughts"])
async def test_an_empty_reply_is_asked_for_again(
    client: Client, scripted: Scripted, nothing: Any, cached_conversations: int
) -> None:
    model = scripted([nothing, nothing, "At last."], order="arrival")
    agent = agent_on(model)
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Go")
        assert await conversation.reply() == "At last."
        assert (await conversation.outcome()).turns == 1
    assert len(model.requests) == 3


async def test_one_that_stays_empty_is_the_end_and_no_stall(client: Client, scripted: Scripted) -> None:
    """Claude ends so where it finds that its tools have said it all."""
    model = scripted([call("look"), say(""), say(""), say("")], order="arrival")
    agent = agent_on(model, tools=[look])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        outcome = await conversation.outcome()
    assert (outcome.status, outcome.text, outcome.turns) == ("completed", "", 2)
    assert len(model.requests) == 4


async def test_what_a_provider_says_of_a_reply_is_in_its_event_and_in_the_export(
    client: Client, scripted: Scripted
) -> None:
    tokens = [{"token": "x" * 700, "logprob": -0.1}] * 100
    choice = {"index": 0, "message": {"content": "Hi."}, "finish_reason": "stop", "logprobs": {"content": tokens}}
    body = {"id": "r1", "model": "demo-2026-03-01", "service_tier": "flex", "choices": [choice]}
    agent = agent_on(scripted([garbage(json.dumps(body).encode())]))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        assert (await conversation.outcome()).text == "Hi."
    (replied,) = [event async for event in conversation.events() if isinstance(event, Replied)]
    assert replied.details == {"model": "demo-2026-03-01", "service_tier": "flex", "left_out": ["logprobs"]}
    lines = to_jsonl(await read_conversation(client, conversation.id)).splitlines()
    (turn,) = [line for line in map(json.loads, lines) if line["kind"] == "turn"]
    assert turn["details"] == replied.details
