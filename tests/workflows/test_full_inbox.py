"""Many long messages in one turn: a signal can't be refused, and Temporal ends a run whose history is too large."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from uuid import uuid4

import pytest
from temporalio.service import RPCError

from everturn import Client, Conversation, tool
from everturn.devserver import DevServer
from everturn.errors import Ended, Refused
from everturn.testing import ScriptedModel, call
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.histories import runs_of
from tests.support.waiting import eventually, waiting

Scripted = Callable[..., ScriptedModel]

LONG = "long " * 60_000
COUNT = 14
ENDS_AT = 6_000_000


@pytest.fixture
async def small() -> AsyncIterator[Client]:
    """Of a server that ends runs of six megabytes, and not of fifty."""
    settings = {"limit.historySize.error": str(ENDS_AT), "history.workflowIdReuseMinimalInterval": '"0s"'}
    async with DevServer(dynamic_config=settings) as server:
        yield await Client.connect(server.address, task_queue="small", by="tester")


@pytest.fixture(autouse=True)
def _small_runs(bounds: Bounds) -> None:
    """An eighth of what they are."""
    bounds(run_bytes=2_500_000, history_bytes=1_000_000)


async def signalled(client: Client, conversation: Conversation, *, count: int = COUNT) -> None:
    handle = client.temporal.get_workflow_handle(conversation.id)
    for number in range(count):
        await handle.signal("message", {"text": f"{number} {LONG}", "message_id": f"m{number}"})


def cut_in(model: ScriptedModel) -> int:
    """How many of the messages the model was shown cut; all of them were to be shown, in their order."""
    said = [str(message["content"]) for message in model.requests[-1]["messages"] if message["role"] == "user"]
    assert len(said) == 1 + COUNT
    return sum("[Cut: " in text for text in said)


def all_shown(model: ScriptedModel) -> bool:
    return sum(message["role"] == "user" for message in model.requests[-1]["messages"]) == 1 + COUNT


async def test_messages_that_fill_a_run_while_a_turn_runs_are_cut_and_answered(
    small: Client, scripted: Scripted
) -> None:
    may_end = threading.Event()

    @tool
    def work() -> str:
        may_end.wait(60)
        return "worked"

    model = scripted(lambda messages: call("work") if len(messages) == 1 else "Done.")
    agent = agent_on(model, tools=[work])
    async with hosting(small, agent):
        conversation = await small.start(agent, "Go", keep_open=timedelta(minutes=5))
        await eventually(lambda: model.requests)
        await signalled(small, conversation)
        may_end.set()
        await eventually(lambda: all_shown(model), what="all are shown to the model")
        assert await asyncio.wait_for(conversation.reply(), 60) == "Done."
        assert cut_in(model) >= COUNT // 2
        assert len(await runs_of(small, conversation)) > 1
        await conversation.close()


async def test_messages_that_fill_a_run_while_a_call_waits_are_cut_and_it_waits_on(
    small: Client, scripted: Scripted
) -> None:
    @tool(needs_approval=True)
    def refund() -> str:
        return "refunded"

    model = scripted(lambda messages: call("refund") if len(messages) == 1 else "Done.")
    agent = agent_on(model, tools=[refund])
    async with hosting(small, agent):
        conversation = await small.start(agent, "Go", keep_open=timedelta(minutes=5))
        (call_id,) = await waiting(conversation)
        await signalled(small, conversation)
        await eventually(lambda: _went_on(small, conversation), what="it went on as a new run")
        assert await waiting(conversation) == (call_id,)
        await conversation.approve(call_id)
        await eventually(lambda: all_shown(model), what="all are shown to the model")
        assert await asyncio.wait_for(conversation.reply(), 60) == "Done."
        assert cut_in(model) >= COUNT // 2
        await conversation.close()


async def _went_on(client: Client, conversation: Conversation) -> bool:
    return len(await runs_of(client, conversation)) > 1


async def test_where_nothing_can_be_cut_in_time_the_conversation_ends_and_says_why(
    small: Client, scripted: Scripted
) -> None:
    """One that is paused goes on as no new run, whatever comes in."""
    agent = agent_on(scripted(lambda _: "Hi."), name=f"clerk-{uuid4().hex}")
    async with hosting(small, agent):
        conversation = await small.start(agent, "Hello", keep_open=timedelta(minutes=5))
        await conversation.reply()
        await conversation.pause()
        with pytest.raises(RPCError, match=r"history size exceeds limit|already completed"):  # by another one's end
            await signalled(small, conversation, count=100)
        with pytest.raises(Ended, match="history size exceeds limit"):
            await conversation.outcome()
        assert "history size exceeds limit" in str((await conversation.status()).cause)


async def test_a_client_does_not_send_what_a_run_has_no_room_for(
    client: Client, scripted: Scripted, bounds: Bounds
) -> None:
    bounds(unread_bytes=800_000)
    agent = agent_on(scripted(lambda _: "Hi."))
    conversation = await client.start(agent, "Hello", keep_open=timedelta(minutes=5))
    for _ in range(2):
        await conversation.send(LONG)
    with pytest.raises(Refused, match=r"can't take a message of 300,\d+ bytes now.*Wait until it has answered"):
        await conversation.send(LONG)
    with pytest.raises(Refused, match="can't take a message"):
        await client.send(agent, LONG, id=conversation.id)
    await conversation.send("short")
    async with hosting(client, agent):
        assert await asyncio.wait_for(conversation.reply(), 60) == "Hi."
        await conversation.close()
        await conversation.outcome()
