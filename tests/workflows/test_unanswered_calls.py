"""The server carries out what it is asked for and has no time to say so: nothing is done twice, and no error."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode

from everturn import Client
from everturn.errors import Refused, Unreachable
from everturn.temporal.temporal_errors import ANSWER_TRIES
from everturn.testing import ScriptedModel
from tests.support.agents import agent_on, hosting
from tests.support.scripts import ONE
from tests.support.tools import refund
from tests.support.waiting import waiting

Scripted = Callable[..., ScriptedModel]

TIMED_OUT = RPCError("Timeout expired", RPCStatusCode.CANCELLED, b"")
TURNED_DOWN = RPCError("unexpected workflow task failure", RPCStatusCode.FAILED_PRECONDITION, b"")


def losing_answers(
    call: Callable[..., Awaitable[Any]],
    error: RPCError,
    *,
    times: int,
    carried_out: bool,
    after: Callable[[], Awaitable[Any]] | None,
) -> Callable[..., Any]:
    """The call as it is; its first answers are lost, though, and `error` comes in their place, once `after` is done."""
    lost = 0

    async def losing(*args: Any, **options: Any) -> Any:
        nonlocal lost
        if lost == times:
            return await call(*args, **options)
        lost += 1
        if carried_out:
            await call(*args, **options)
        if after:
            await after()
        raise error

    return losing


@pytest.fixture
def lose(client: Client, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def patch(
        name: str,
        error: RPCError = TIMED_OUT,
        *,
        times: int = 1,
        carried_out: bool = True,
        after: Callable[[], Awaitable[Any]] | None = None,
    ) -> None:
        owner = client.temporal if name == "start_workflow" else WorkflowHandle
        losing = losing_answers(getattr(owner, name), error, times=times, carried_out=carried_out, after=after)
        monkeypatch.setattr(owner, name, losing)

    return patch


@pytest.mark.parametrize("again", [False, True])
async def test_a_start_is_made_once(client: Client, scripted: Scripted, lose: Callable[..., None], again: bool) -> None:
    model = scripted(["Hello."])
    agent = agent_on(model)
    async with hosting(client, agent):
        lose("start_workflow")
        conversation = await client.start(agent, "Hi", id=f"{client.task_queue}-once", again=again)
        assert await conversation.reply() == "Hello."
    assert len(model.requests) == 1


async def test_a_first_message_by_send_is_delivered_once(
    client: Client, scripted: Scripted, lose: Callable[..., None]
) -> None:
    agent = agent_on(scripted(["Hello."]))
    async with hosting(client, agent):
        lose("start_workflow")
        conversation = await client.send(agent, "Hi", id=f"{client.task_queue}-sent")
        assert await conversation.reply() == "Hello."
        assert [message.text for message in await conversation.transcript()] == ["Hi", "Hello."]


async def test_a_fork_is_made_once(client: Client, scripted: Scripted, lose: Callable[..., None]) -> None:
    agent = agent_on(scripted(["Hello.", "Bye."]))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Hi", keep_open=timedelta(minutes=1))
        assert await conversation.reply() == "Hello."
        lose("start_workflow")
        fork = await conversation.fork(1, id=f"{client.task_queue}-fork")
        await fork.send("Bye")
        assert await fork.reply() == "Bye."


async def test_a_message_is_delivered_once(client: Client, scripted: Scripted, lose: Callable[..., None]) -> None:
    agent = agent_on(scripted(["Hello.", "Bye."]))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Hi", keep_open=timedelta(minutes=1))
        assert await conversation.reply() == "Hello."
        lose("signal")
        await conversation.send("Bye")
        assert await conversation.reply() == "Bye."
        assert [message.text for message in await conversation.transcript()] == ["Hi", "Hello.", "Bye", "Bye."]


async def test_a_server_that_never_answers_is_not_asked_for_ever(
    client: Client, scripted: Scripted, lose: Callable[..., None]
) -> None:
    lose("start_workflow", times=ANSWER_TRIES, carried_out=False)
    with pytest.raises(Unreachable, match="Timeout expired"):
        await client.start(agent_on(scripted([])), "Hi")


@pytest.mark.parametrize("keep_open", [None, timedelta(minutes=1)], ids=["over by then", "open"])
async def test_a_decision_that_was_taken_after_all_is_not_refused(
    client: Client, scripted: Scripted, lose: Callable[..., None], keep_open: timedelta | None
) -> None:
    """The server says that it took nothing of the task that an update was in. It had, though."""
    agent = agent_on(scripted([ONE, "Refunded."]), tools=[refund])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Refund it", keep_open=keep_open)
        await waiting(conversation)
        # What is lost is lost once the conversation has done what follows from it.
        done = conversation.reply if keep_open else conversation.outcome
        lose("execute_update", TURNED_DOWN, after=done)
        decided = await conversation.approve()
        assert decided
        assert await conversation.reply() == "Refunded."


async def test_somebody_elses_decision_is_still_told(
    client: Client, scripted: Scripted, lose: Callable[..., None]
) -> None:
    agent = agent_on(scripted([ONE, "Refunded."]), tools=[refund])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Refund it", keep_open=timedelta(minutes=1))
        (call_id,) = await waiting(conversation)
        await conversation.approve(call_id)
        lose("execute_update", TURNED_DOWN, carried_out=False)
        with pytest.raises(Refused, match="approve by tester"):
            await conversation.deny(call_id, "No")
