"""Whoever is asked at the terminal is asked again, if what they decided could not be carried out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from everturn import Client, Conversation
from everturn.cli.approval_prompt import ApprovalPrompt
from everturn.cli.terminal import Screen
from everturn.testing import ScriptedModel
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.scripts import ONE
from tests.support.tools import refund
from tests.support.waiting import eventually, waiting

Scripted = Callable[..., ScriptedModel]


class Person(Screen):
    """Somebody who says what a test puts into `says`."""

    def __init__(self) -> None:
        super().__init__()
        self.can_ask = True
        self.says: asyncio.Queue[str] = asyncio.Queue()
        self.asked = 0

    async def ask_line(self, *_: Any, **__: Any) -> str:
        self.asked += 1
        return await self.says.get()


@asynccontextmanager
async def attending(
    conversation: Conversation, screen: Screen, *, approve_all: bool = False
) -> AsyncIterator[asyncio.Task[None]]:
    """The task of a prompt that asks what waits already, until the end of the block."""
    prompt = ApprovalPrompt(conversation, screen=screen, approve_all=approve_all, prefix="")
    prompt.nudge()
    task = asyncio.create_task(prompt.ask_until_cancelled())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait({task})


def still(task: asyncio.Task[None]) -> bool:
    """Raises what has ended the task."""
    if task.done():
        task.result()
    return True


async def test_a_decision_that_no_worker_takes_is_asked_for_again(
    client: Client, scripted: Scripted, bounds: Bounds, capsys: pytest.CaptureFixture[str]
) -> None:
    bounds(answer_seconds=1.0)
    agent, person = agent_on(scripted(ONE), tools=[refund]), Person()
    async with AsyncExitStack() as stack:
        async with hosting(client, agent):
            conversation = await client.start(agent, "Refund 81")
            await waiting(conversation)
            prompt = await stack.enter_async_context(attending(conversation, person))
            await eventually(lambda: person.asked == 1)
        person.says.put_nowait("y")  # while the worker is being deployed
        await eventually(lambda: still(prompt) and person.asked == 2)
        assert "was withdrawn: it will not be carried out later" in capsys.readouterr().err
        async with hosting(client, agent):
            person.says.put_nowait("y")
            assert (await conversation.outcome()).text == "Done."


async def test_yes_tries_again_until_a_worker_is_there(
    client: Client, scripted: Scripted, bounds: Bounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds(answer_seconds=1.0)
    agent, tries = agent_on(scripted(ONE), tools=[refund]), 0
    worker = hosting(client, agent)
    approve = Conversation.approve

    async def approving(self: Conversation, *args: Any, **options: Any) -> Any:
        nonlocal tries
        tries += 1
        if tries == 1:  # the worker leaves between the question and the answer
            await worker.__aexit__(None, None, None)
        return await approve(self, *args, **options)

    monkeypatch.setattr(Conversation, "approve", approving)
    await worker.__aenter__()
    conversation = await client.start(agent, "Refund 81")
    await waiting(conversation)
    async with attending(conversation, Screen(), approve_all=True) as prompt:
        await eventually(lambda: still(prompt) and tries == 2)
        async with hosting(client, agent):
            assert (await conversation.outcome()).text == "Done."


async def test_a_decision_on_what_is_over_by_now_is_no_error(
    client: Client, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, person = agent_on(scripted(ONE), tools=[refund]), Person()
    approve, answered = Conversation.approve, asyncio.Event()

    async def approving(self: Conversation, *args: Any, **options: Any) -> Any:
        try:
            return await approve(self, *args, **options)
        finally:
            answered.set()

    monkeypatch.setattr(Conversation, "approve", approving)
    async with hosting(client, agent):
        conversation = await client.start(agent, "Refund 81")
        await waiting(conversation)
        async with attending(conversation, person) as prompt:
            await eventually(lambda: person.asked == 1)
            await conversation.close()  # as somebody does in the inbox
            await conversation.outcome()
            person.says.put_nowait("y")
            await eventually(answered.is_set)
            assert still(prompt)
