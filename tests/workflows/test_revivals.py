"""A conversation that is over and goes on: its agent's limits, its events, and whose id it is."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from everturn import Client, Limits
from everturn.errors import AlreadyStarted, ConversationError, NotFound, Refused
from everturn.testing import ScriptedModel
from tests.support.agents import agent_on, hosting
from tests.support.scripts import pages
from tests.support.tools import read_page

Scripted = Callable[..., ScriptedModel]


async def test_its_limits_are_its_agents_and_not_the_defaults(client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted(pages(104)), tools=[read_page], limits=Limits(max_turns=150))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Read it all")
        assert (await conversation.outcome()).turns == 105
        for _ in range(2):
            await client.send(agent, "And?", id=conversation.id)
            outcome = await conversation.outcome()
    assert (outcome.status, outcome.turns) == ("completed", 107)


async def test_a_cursor_of_before_goes_on_through_it(client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted(["One.", "Two.", "Three."]))
    async with hosting(client, agent):
        conversation = await client.start(agent, "1")
        await conversation.outcome()
        first = [event async for event in conversation.events()]
        assert [event async for event in conversation.events(first[-1].cursor)] == []
        later = []
        for said in ("2", "3"):
            await client.send(agent, said, id=conversation.id)
            await conversation.outcome()
            later.append([event async for event in conversation.events()])
        every = [*first, *later[0], *later[1]]
        for place, event in enumerate(every):
            assert [one async for one in conversation.events(event.cursor)] == every[place + 1 :]
        # Another conversation that takes its id is none of its own.
        await client.start(agent, "Anew", id=conversation.id)
        await conversation.outcome()
        assert [one async for one in conversation.events(every[-1].cursor)] == []
    assert [event.kind for event in every].count("done") == 3


async def test_a_fork_takes_nobodys_id(client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted(["One.", "Two."]))
    async with hosting(client, agent):
        mine = await client.start(agent, "1")
        other = await client.start(agent, "Mine")
        for conversation in (mine, other):
            await conversation.outcome()
        with pytest.raises(AlreadyStarted, match=f"There is a conversation '{other.id}' already"):
            await mine.fork(at_turn=1, id=other.id)
        assert (await other.transcript())[0].text == "Mine"
        with pytest.raises(Refused, match="has no turn 'x'"):
            await mine.fork(at_turn="x")  # type: ignore[arg-type]


@pytest.mark.parametrize("empty", ["", "  \n", []])
async def test_nothing_is_said_with_an_empty_message(client: Client, scripted: Scripted, empty: str) -> None:
    agent = agent_on(scripted(["One."]))
    async with hosting(client, agent):
        with pytest.raises(Refused, match="The message"):
            await client.start(agent, empty, id="never")
        conversation = await client.start(agent, "1", keep_open=timedelta(minutes=1))
        with pytest.raises(Refused, match="The message"):
            await conversation.send(empty)
        await conversation.close()
        await conversation.outcome()
        with pytest.raises(Refused, match="The message"):
            await client.send(agent, empty, id=conversation.id)
        with pytest.raises(NotFound):
            await client.conversation("never").status()
        with pytest.raises(Refused, match="UTF-8"):
            await client.start(agent, "caf\udce9")
        with pytest.raises(ConversationError, match="Look at the id"):
            await client.conversation("").status()
