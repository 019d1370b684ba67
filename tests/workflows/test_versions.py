"""What a running conversation sees of a deploy, and how it stays with the version that it began with."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from everturn import Agent, AgentStore, Client, Conversation, Limits, Worker, tool
from everturn.errors import InvalidAgent
from everturn.history.reader import read_steps
from everturn.history.state_by_history import StateByHistory
from everturn.history.steps import TurnCompleted
from everturn.payloads import ModelReply
from everturn.testing import ScriptedModel, call
from everturn.worker.deploy_check import find_conflicts
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
    for conversation in conversations:
        await conversation.close()
        await conversation.outcome()


@pytest.mark.long
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
        assert [conflict.problem async for conflict in find_conflicts(client, [six, seven])] == []
    async with hosting(client, seven, cached_conversations=0):
        assert await said(new, "And now?") == "I am 7."
        await old.send("And now?")

        async def asked_there() -> bool:
            cause = (await old.status()).cause or ""
            return "has the agent 'clerk@6'; the worker that was asked last hosts clerk, clerk@7" in cause

        await eventually(asked_there)  # first it may say that nobody polls, until the server shows the new worker
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
        await conversation.send("More")  # the limits of the new agent hold from its first turn's end on
        outcome = await conversation.outcome()
        assert (outcome.status, outcome.turns) == ("limit_reached", 4)


OLD_LIMITS = Limits()
NEW_LIMITS = Limits(
    max_turns=7,
    max_tool_calls=8,
    max_parallel_calls=2,
    max_total_tokens=9_000_000,
    max_cost_usd=9.5,
    max_duration=timedelta(hours=9),
    max_handoffs=1,
    conclude=False,
    max_result_chars=2_000,
)


async def has_limits(client: Client, conversation: Conversation, limits: Limits) -> None:
    """Once the workflow task after the reply is done."""

    async def knows() -> bool:
        found = StateByHistory()
        async for step in read_steps(client.temporal, conversation.id):
            found.take_step(step)
        return found.state.limits == limits

    await eventually(knows)


async def test_each_changed_limit_reaches_a_running_conversation_with_its_next_turn(
    client: Client, scripted: Scripted
) -> None:
    assert NEW_LIMITS.model_fields_set == set(Limits.model_fields)  # of those that there are, none is left out
    model = scripted(lambda messages: "Hello.")
    old, new = agent_on(model, limits=OLD_LIMITS), agent_on(model, limits=NEW_LIMITS)
    async with hosting(client, old):
        conversation = await client.start(old, "Hi", keep_open=timedelta(minutes=5))
        own = await client.start(old, "Hi", keep_open=timedelta(minutes=5), limits=Limits(max_turns=50))
        for one in (conversation, own):
            assert await one.reply() == "Hello."
        await has_limits(client, conversation, OLD_LIMITS)
    for agent in (new, old, new):  # whatever is deployed, and back again
        async with hosting(client, agent):
            for one in (conversation, own):
                assert await said(one, "Hi") == "Hello."
            await has_limits(client, conversation, agent.limits)
            # What somebody set at its start stays.
            await has_limits(client, own, agent.limits.model_copy(update={"max_turns": 50}))
    async with hosting(client, new):
        for one in (conversation, own):
            before = len(await replies(client, one))
            assert await said(one, "Hi") == "Hello."
            [*_, last] = await replies(client, one)
            assert (len(await replies(client, one)), last.facts) == (before + 1, None)  # nothing new, so nothing said
            await ended(one)


async def replies(client: Client, conversation: Conversation) -> list[ModelReply]:
    return [
        step.reply async for step in read_steps(client.temporal, conversation.id) if isinstance(step, TurnCompleted)
    ]


def test_the_page_says_of_each_setting_when_it_reaches_a_running_conversation() -> None:
    page = Path("docs/howto/pin-versions.md").read_text()
    said_there = set(re.findall(r"`(\w+)`", page.split("## Setting by setting")[1].split("\n## ")[0]))
    assert set(Limits.model_fields) <= said_there
    options = set(inspect.signature(Agent).parameters) - {"name", "version", "limits"}
    assert options - said_there == set()


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
