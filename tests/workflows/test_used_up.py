"""Temporal takes a number of updates in a run, and no more: then people decide and steer all the same."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from uuid import uuid4

import pytest

from everturn import Client, Conversation
from everturn.devserver import DevServer
from everturn.errors import Refused
from everturn.testing import ScriptedModel, call
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.tools import refund
from tests.support.transcripts import results_of
from tests.support.waiting import waiting

Scripted = Callable[..., ScriptedModel]

ALLOWED = 3


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    """Of a server that takes three updates in a run."""
    async with DevServer(dynamic_config={"history.maxTotalUpdates": str(ALLOWED)}) as server:
        yield await Client.connect(server.address, task_queue=f"test-{uuid4().hex[:8]}", by="tester")


async def test_commands_go_by_signal_once_the_updates_are_used_up(
    client: Client, scripted: Scripted, bounds: Bounds
) -> None:
    bounds(open_bytes=0)  # what is too large to be handed on waits where it is
    calls = [call("refund", {"order_id": order, "cents": 5}, id=order) for order in ("81", "82", "83")]
    agent = agent_on(scripted([calls, "Done."]), tools=[refund])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Refund them", keep_open=timedelta(minutes=5))
        await waiting(conversation, calls=3)
        await use_up(client, conversation)
        assert await conversation.approve("81", note="fine") == ("81",)
        with pytest.raises(Refused, match="No call 'nobody' waits"):
            await conversation.deny("nobody")
        with pytest.raises(Refused, match="did not accept the approve"):
            await conversation.approve("82", expected={"order_id": "80", "cents": 5})
        assert set(await conversation.deny("*", reason="no")) == {"82", "83"}
        assert await conversation.reply() == "Done."
        await conversation.pause()
        assert (await conversation.status()).state == "paused"
        await conversation.resume()
        assert (await conversation.status()).state == "idle"
        await conversation.close()
        assert (await conversation.outcome()).status == "completed"
    first, *_ = results_of(await conversation.transcript())
    assert first.decision is not None
    assert (first.decision.by, first.decision.note) == ("tester", "fine")


async def use_up(client: Client, conversation: Conversation) -> None:
    handle = client.temporal.get_workflow_handle(conversation.id)
    for number in range(ALLOWED):
        if number % 2:
            await handle.execute_update("resume", {})
        else:
            await handle.execute_update("pause", {})
    await handle.signal("resume", {})
