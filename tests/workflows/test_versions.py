"""What a running conversation sees of a deploy, and how it stays with the version that it began with."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from everturn import Agent, AgentStore, Client, Conversation, Limits, Worker, tool
from everturn.errors import InvalidAgent
from everturn.testing import ScriptedModel, call
from everturn.worker.deploy_check import conflicts
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.waiting import eventually

Scripted = Callable[..., ScriptedModel]


def says_who(messages: list[dict[str, Any]]) -> str:
    """Its instructions."""
    return str(messages[0]["content"])


def version(model: ScriptedModel, of: str | None, *, name: str = "clerk", **options: Any) -> Agent:
    return agent_on(model, name=name, version=of, instructions=f"I am {of}.", **options)


async def said(conversation: Conversation, text: str) -> str:
    await conversation.send(text)
    return await conversation.reply()


async def ended(*conversations: Conversation) -> None:
    for one in conversations:
        await one.close()
        await one.outcome()


async def test_a_conversation_stays_with_the_version_of_its_first_turn(
    client: Client, scripted: Scripted, bounds: Bounds
) -> None:
    bounds(events=12)  # it continues as new runs
    model = scripted(says_who)
    six, seven = version(model, "6"), version(model, "7")
    kept = {"keep_open": timedelta(minutes=5)}
    async with hosting(client, six, cached_conversations=0):
        old = await client.start("clerk", "Hi", **kept)
        assert await old.reply() == "I am 6."
    async with hosting(client, seven, six, cached_conversations=0):
        assert await said(old, "And now?") == "I am 6."
        new = await client.start("clerk", "Hi", **kept)  # the version that is listed first
        assert await new.reply() == "I am 7."
        asked = await client.start(six, "Hi", **kept)
        assert await asked.reply() == "I am 6."
        for _ in range(4):
            assert await said(old, "And now?") == "I am 6."
        assert (await old.status()).agent == "clerk@6"
        assert [one.problem async for one in conflicts(client, [six, seven])] == []
    async with hosting(client, seven, cached_conversations=0):
        assert await said(new, "And now?") == "I am 7."
        await old.send("And now?")

        async def cause() -> str:
            return (await old.status()).cause or ""

        assert "has the agent 'clerk@6'; the worker that was asked last hosts clerk, clerk@7" in await eventually(cause)
    async with hosting(client, six, cached_conversations=0):
        assert await old.reply() == "I am 6."
        await ended(old, asked)
    async with hosting(client, seven, cached_conversations=0):
        # Once it is over, the next message begins it with the version of today.
        await client.send("clerk", "Again", id=old.id)
        assert await old.reply() == "I am 7."
        await ended(new)
        await old.outcome()


async def test_agents_that_it_asks_and_is_handed_to_are_of_the_version_that_it_names(
    client: Client, scripted: Scripted
) -> None:
    helper = scripted(says_who)

    def asks(messages: list[dict[str, Any]]) -> Any:
        return messages[-1]["content"] if messages[-1]["role"] == "tool" else call("helper", {"message": "Who?"})

    def hands_on(messages: list[dict[str, Any]]) -> Any:
        return call("transfer_to_helper_1") if messages[-1]["role"] == "user" else "no"

    first, second = (version(helper, of, name="helper") for of in "12")
    desk = agent_on(scripted(asks), name="desk", tools=[first])
    hall = agent_on(scripted(hands_on), name="hall", handoff_to=[first])
    async with hosting(client, second, desk, hall):
        asked = await client.start(desk, "Go")
        assert "I am 1." in await asked.reply()
        handed = await client.start(hall, "Go")
        assert await handed.reply() == "I am 1."
        assert (await handed.outcome()).status == (await asked.outcome()).status == "completed"


async def test_a_store_that_says_a_version_pins_it(client: Client, scripted: Scripted) -> None:
    model, current = scripted(says_who), "6"

    def find(name: str, wanted: str | None) -> Agent:
        return version(model, wanted or current)

    async with Worker(client, agents=AgentStore(find, cache_for=timedelta())):
        old = await client.start("clerk", "Hi", keep_open=timedelta(minutes=5))
        assert await old.reply() == "I am 6."
        current = "7"
        new = await client.start("clerk", "Hi")
        assert await new.reply() == "I am 7."
        assert await said(old, "And now?") == "I am 6."
        await ended(old)
        await new.outcome()


async def test_without_a_version_a_running_conversation_sees_the_new_agent_from_its_next_turn_on(
    client: Client, scripted: Scripted
) -> None:
    @tool(needs_approval=True)
    def look(city: str) -> str:
        """Look."""
        return f"old look at {city}"

    @tool(name="look", needs_approval=True)
    def look_anew(town: str) -> str:
        """Look anew."""
        return f"new look at {town}"

    def script(messages: list[dict[str, Any]]) -> Any:
        if messages[-1]["content"] == "Look":
            return call("look", {"city": "Paris"})
        return f"{messages[0]['content']} {messages[-1]['content']}"

    old_model, new_model = scripted(script), scripted(script)
    old = agent_on(old_model, tools=[look], instructions="Old.", limits=Limits(max_turns=50))
    new = agent_on(new_model, tools=[look_anew], instructions="New.", limits=Limits(max_turns=3))
    async with hosting(client, old):
        conversation = await client.start(old, "Hi", keep_open=timedelta(minutes=5))
        assert await conversation.reply() == "Old. Hi"
        await conversation.send("Look")
        await eventually(lambda: _waits(conversation))
    async with hosting(client, new):
        await (
            conversation.approve()
        )  # planned by the old agent: its arguments no longer fit the tool, and the model is told
        reply = await conversation.reply()
        assert reply.startswith("New. ")
        assert "town" in reply
        assert len(new_model.requests) == 1
        # The limits stay as they were when it began.
        assert (await said(conversation, "More")).endswith("More")
        assert (await conversation.status()).state == "idle"
        await ended(conversation)


async def _waits(conversation: Conversation) -> bool:
    return bool((await conversation.status()).waiting)


@pytest.mark.parametrize("wrong", ["", "a b", 7, "x@y", "x" * 65])
def test_what_is_no_version_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidAgent, match=r"Agent 'clerk' has version="):
        Agent("clerk", model="scripted:x", version=wrong)


def test_two_agents_of_one_name_need_versions_that_differ(client: Client, scripted: Scripted) -> None:
    model = scripted(["Hi."])
    with pytest.raises(InvalidAgent, match="Two agents are called 'clerk@7'"):
        hosting(client, version(model, "7"), version(model, "7"))
