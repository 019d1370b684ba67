"""A conversation that is over and goes on: its agent's limits, its events, and whose id it is."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from everturn import Client, Limits, state
from everturn.errors import AlreadyStarted, ConversationError, Ended, NotFound, Refused
from everturn.testing import ScriptedModel
from tests.support.agents import agent_on, hosting
from tests.support.scripts import pages
from tests.support.tools import read_page

Scripted = Callable[..., ScriptedModel]


@pytest.mark.long
async def test_its_limits_are_its_agents_and_not_the_defaults(
    client: Client, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has had more turns than the default allows, which is a hundred otherwise."""

    class Few(Limits):
        max_turns: int = 3

    monkeypatch.setattr(state, "Limits", Few)
    agent = agent_on(scripted(pages(4)), tools=[read_page], limits=Limits(max_turns=9))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Read it all")
        assert (await conversation.outcome()).turns == 5
        for _ in range(2):
            await client.send(agent, "And?", id=conversation.id)
            outcome = await conversation.outcome()
    assert (outcome.status, outcome.turns) == ("completed", 7)


async def test_what_is_said_to_its_handle_takes_it_up_again_as_it_was(client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted(["One.", "Two.", "Three."]))
    async with hosting(client, agent):
        conversation = await client.start(agent, "1", keep_open=timedelta(minutes=5), limits=Limits(max_turns=7))
        assert await conversation.reply() == "One."
        assert await conversation.send("2", message_id="two", revive=True) is False
        assert await conversation.reply() == "Two."
        await conversation.close()
        await conversation.outcome()
        with pytest.raises(Ended, match=r"send\(\.\.\., revive=True\) continues it"):
            await conversation.send("3")
        assert await conversation.send("2", message_id="two", revive=True) is False
        assert (await conversation.status()).state == "done"

        assert await conversation.send("3", message_id="three", revive=True) is True
        assert await conversation.send("3", message_id="three", revive=True) is False
        assert await conversation.reply() == "Three."
        assert (await conversation.status()).state == "idle"
        start = (await conversation.by_history()).state.start
        assert (start.agent, start.keep_open, start.limits) == (agent.name, 300.0, Limits(max_turns=7))
        said = [message.text for message in await conversation.transcript() if message.role == "user"]
        assert said == ["1", "2", "3"]
        await conversation.close()


async def test_nobody_is_revived_who_was_never_there(client: Client) -> None:
    with pytest.raises(NotFound, match="There is no conversation 'nobody'"):
        await client.conversation("nobody").send("Hello", revive=True)


@pytest.mark.parametrize(("revived_with", "streams"), [(None, True), (False, False)])
async def test_it_streams_as_it_did_unless_told_otherwise(
    client: Client, scripted: Scripted, revived_with: bool | None, streams: bool
) -> None:
    agent = agent_on(scripted(["One.", "Two."]))
    async with hosting(client, agent):
        conversation = await client.start(agent, "1", stream=True)
        await conversation.outcome()
        await client.send(agent, "2", id=conversation.id, stream=revived_with)
        await conversation.outcome()
        assert (await conversation.by_history()).state.start.stream is streams


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
        # The first life's, one in the middle of each, and both sides of each end.
        ends = [place for place, event in enumerate(every) if event.kind == "done"]
        for place in sorted({0, 1, *(end + by for end in ends for by in (-2, 0, 1) if end + by < len(every))}):
            later_events = [event async for event in conversation.events(every[place].cursor)]
            assert later_events == every[place + 1 :], every[place].kind
        # Another conversation that takes its id is none of its own.
        await client.start(agent, "Anew", id=conversation.id, again=True)
        await conversation.outcome()
        assert [event async for event in conversation.events(every[-1].cursor)] == []
    assert [event.kind for event in every].count("done") == 3


async def test_a_fork_takes_nobodys_id(client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted(["One.", "Two."]))
    async with hosting(client, agent):
        mine = await client.start(agent, "1")
        other = await client.start(agent, "Mine")
        for conversation in (mine, other):
            await conversation.outcome()
        with pytest.raises(AlreadyStarted, match=f"Conversation '{other.id}' exists already"):
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
        with pytest.raises(ConversationError, match="Check the id"):
            await client.conversation("").status()
