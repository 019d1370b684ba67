"""A cancelled turn hands over what it said, which takes a moment: what people send meanwhile counts. So say lists."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from everturn import Client, Conversation, names, tool
from everturn.activities.model_turns import ModelTurns
from everturn.client.followed_reply import FollowedReply
from everturn.errors import Ended
from everturn.testing import ScriptedModel, call, say
from tests.support.agents import agent_on, hosting
from tests.support.half_told import HALF, half_told, until_told
from tests.support.waiting import WAIT_SECONDS, eventually, reaches

Scripted = Callable[..., ScriptedModel]


class Slow:
    """Turns that were cancelled hand over what they said once they may."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.may = asyncio.Event(), asyncio.Event()
        turn = ModelTurns._run_turn

        async def held(*given: Any) -> Any:
            try:
                return await turn(*given)
            except asyncio.CancelledError:
                self.reached.set()
                await self.may.wait()
                raise

        monkeypatch.setattr(ModelTurns, "_run_turn", held)


@pytest.fixture
async def slow(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Slow]:
    made = Slow(monkeypatch)
    yield made
    made.may.set()


@asynccontextmanager
async def half_way(client: Client, model: ScriptedModel, cached_conversations: int) -> AsyncIterator[Conversation]:
    agent = agent_on(model)
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Tell me a story", keep_open=timedelta(minutes=1), stream=True)
        await until_told(conversation.events(), HALF)
        yield conversation


async def cancelled(client: Client, conversation: Conversation, slow: Slow) -> None:
    await client.temporal.get_workflow_handle(conversation.id).signal("cancel_turn")
    await asyncio.wait_for(slow.reached.wait(), WAIT_SECONDS)


async def listed(client: Client, conversation: Conversation) -> object:
    described = await client.temporal.get_workflow_handle(conversation.id).describe()
    [status] = described.search_attributes[names.EVERTURN_STATUS]
    return status


async def test_who_pauses_meanwhile_pauses_what_comes_after(
    client: Client, scripted: Scripted, cached_conversations: int, go_on: threading.Event, slow: Slow
) -> None:
    model = scripted([half_told(go_on), "As you like."], order="arrival")
    async with half_way(client, model, cached_conversations) as conversation:
        await cancelled(client, conversation, slow)
        await conversation.pause()
        slow.may.set()
        await conversation.send("Shorter")
        await eventually(lambda: _is_cut(conversation))
        assert (await conversation.status()).state == "paused"
        await eventually(lambda: _is_listed_as(client, conversation, "paused"))
        assert len(model.requests) == 1
        await conversation.resume()
        assert await conversation.reply() == "As you like."
        assert [message.text for message in await conversation.transcript()][1:] == [HALF, "Shorter", "As you like."]
        await conversation.close()
        await conversation.outcome()


async def test_who_closes_meanwhile_ends_it_with_what_was_said(
    client: Client, scripted: Scripted, cached_conversations: int, go_on: threading.Event, slow: Slow
) -> None:
    async with half_way(client, scripted([half_told(go_on)]), cached_conversations) as conversation:
        await cancelled(client, conversation, slow)
        await conversation.close()
        slow.may.set()
        assert (await conversation.outcome()).status == "cancelled"
        assert [message.text for message in await conversation.transcript()] == ["Tell me a story", HALF]


async def test_who_writes_and_closes_meanwhile_is_answered_by_nobody(
    client: Client, scripted: Scripted, cached_conversations: int, go_on: threading.Event, slow: Slow
) -> None:
    model = scripted([half_told(go_on)])
    async with half_way(client, model, cached_conversations) as conversation:
        await cancelled(client, conversation, slow)
        await conversation.send("Shorter")
        await conversation.close()
        slow.may.set()
        outcome = await conversation.outcome()
        texts = [message.text for message in await conversation.transcript()]
    assert (outcome.status, outcome.reason) == ("cancelled", "the conversation was closed before it was answered")
    assert texts[:3] == ["Tell me a story", HALF, "Shorter"]


@pytest.mark.parametrize("end", ["cancel", "terminate"])
async def test_what_was_said_while_it_closed_is_not_lost_if_an_operator_ends_it_then(
    client: Client, scripted: Scripted, cached_conversations: int, end: str
) -> None:
    """No new run takes it up: it was in no transcript, though events had told of it and its id counted as taken."""
    begun = asyncio.Event()

    @tool
    async def work() -> str:
        begun.set()
        await asyncio.Event().wait()
        return "never"

    model = scripted([[say("Let me see."), call("work")], "Both, then."], order="arrival")
    agent = agent_on(model, tools=[work])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Go", keep_open=timedelta(minutes=1))
        await asyncio.wait_for(begun.wait(), WAIT_SECONDS)
        await conversation.close()
        await conversation.send("One more", message_id="late")
        handle = client.temporal.get_workflow_handle(conversation.id)
        await (handle.cancel() if end == "cancel" else handle.terminate("by an operator"))
        await reaches(conversation, "done")
        with pytest.raises(Ended):
            await conversation.reply()
        if end == "cancel":
            outcome = await conversation.outcome()
            assert outcome.reason == "the workflow was cancelled"
            assert [message.role for message in outcome.tail] == ["tool", "user"]
        async with FollowedReply(conversation, message_id="late") as answer:
            messages = [*await answer.transcript(), *answer.untaken_messages]
        assert [message.text for message in messages if message.role == "user"] == ["Go", "One more"]

        assert await conversation.send("One more", message_id="late", revive=True) is False, "it has that one"
        assert await conversation.send("And another", revive=True) is True
        assert await conversation.reply() == "Both, then."
        texts = [message.text for message in await conversation.transcript() if message.role == "user"]
        await conversation.close()
        await conversation.outcome()
    assert texts == ["Go", "One more", "And another"]
    assert [text for text in ("One more", "And another") if text in str(model.requests[-1])] == texts[1:]


@pytest.mark.parametrize("command", ["cancel_turn", "close"])
async def test_lists_say_that_a_paused_conversation_goes_on_to_its_end(
    client: Client, scripted: Scripted, cached_conversations: int, go_on: threading.Event, slow: Slow, command: str
) -> None:
    """They said that it was paused for as long as its model spoke."""
    async with half_way(client, scripted([half_told(go_on)]), cached_conversations) as conversation:
        await conversation.pause()
        assert await listed(client, conversation) == "paused"
        await client.temporal.get_workflow_handle(conversation.id).signal(command)
        await reaches(conversation, "running")
        await eventually(lambda: _is_listed_as(client, conversation, "running"))
        slow.may.set()
        go_on.set()
        if command == "cancel_turn":
            await eventually(lambda: _is_listed_as(client, conversation, "idle"))
            await conversation.close()
        await conversation.outcome()


async def _is_listed_as(client: Client, conversation: Conversation, state: str) -> bool:
    """A status is known before its workflow task is over, and lists say it afterwards."""
    return await listed(client, conversation) == state


async def _is_cut(conversation: Conversation) -> bool:
    return any(message.cut_short for message in await conversation.transcript())
