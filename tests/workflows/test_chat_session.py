"""`everturn chat` while somebody else acts on its conversation: the person at the prompt gets the prompt back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from everturn import Client, tool
from everturn.agent import Agent
from everturn.cli.chat_session import ChatSession
from everturn.cli.connect import Connection
from everturn.cli.terminal import Screen
from everturn.client.conversation import Conversation
from everturn.testing import ScriptedModel, call, slow
from tests.support.agents import agent_on, hosting
from tests.support.operators import reset_to
from tests.support.waiting import eventually

Scripted = Callable[..., ScriptedModel]


class Person(Screen):
    """Types the next line whenever a prompt is shown, and leaves once there is none."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__()
        self.prompts = 0
        self._lines = list(lines)
        self.may_go_on = asyncio.Event()
        """Set by the test once it has seen the prompt after the first line."""

    async def ask_line(self, *_: Any, **__: Any) -> str:
        self.prompts += 1
        if self.prompts == 2:
            await self.may_go_on.wait()
        if not self._lines:
            raise EOFError
        return self._lines.pop(0)


@asynccontextmanager
async def chatting(client: Client, agent: Agent, *lines: str) -> AsyncIterator[tuple[Person, Conversation]]:
    """A person who chats, and the same conversation in another terminal."""
    person = Person(lines)
    session = ChatSession(Connection(client, agent, None, prefix="", lasts=True), "chat", person, approve_all=False)
    talking = asyncio.create_task(session.talk_until_left(begun=lambda: None))
    try:
        yield person, client.conversation("chat")
        person.may_go_on.set()
        await talking
    finally:
        talking.cancel()
        await asyncio.wait({talking})


async def test_a_turn_that_somebody_else_cancels_gives_the_prompt_back(
    client: Client, scripted: Scripted, capsys: pytest.CaptureFixture[str]
) -> None:
    leave = threading.Event()
    model = scripted([slow("Never.", until=leave), "Two."], order="arrival")
    agent = agent_on(model)
    try:
        async with hosting(client, agent), chatting(client, agent, "One?", "Two?") as (person, elsewhere):
            await eventually(lambda: model.requests)
            await elsewhere.cancel_turn()
            await eventually(lambda: person.prompts == 2, what="the prompt is back", seconds=40)
    finally:
        leave.set()
    printed = capsys.readouterr()
    assert "Two." in printed.out
    assert "cancel_turn by tester" in printed.err


async def test_a_cancelled_turn_is_followed_by_the_answer_to_what_was_said_meanwhile(
    client: Client, scripted: Scripted, capsys: pytest.CaptureFixture[str]
) -> None:
    """The prompt comes behind that answer."""
    runs, leave = threading.Event(), threading.Event()

    @tool
    def look() -> str:
        runs.set()
        leave.wait()
        return "seen"

    model = scripted([call("look"), "Both."], order="arrival")
    agent = agent_on(model, tools=[look])
    try:
        async with hosting(client, agent), chatting(client, agent, "One?") as (person, elsewhere):
            await eventually(runs.is_set)
            await elsewhere.send("And two?")
            await elsewhere.cancel_turn()
            await eventually(lambda: person.prompts == 2, what="the prompt is back", seconds=40)
            assert "Both." in capsys.readouterr().out
    finally:
        leave.set()


async def test_a_reset_that_drops_the_message_gives_the_prompt_back(client: Client, scripted: Scripted) -> None:
    leave = threading.Event()
    model = scripted(["One.", slow("Never.", until=leave)], order="arrival")
    agent = agent_on(model)
    try:
        async with hosting(client, agent), chatting(client, agent, "One?", "Two?") as (person, elsewhere):
            await eventually(lambda: person.prompts == 2, seconds=40)
            person.may_go_on.set()
            await eventually(lambda: len(model.requests) == 2)
            await reset_to(client, elsewhere, task=-2, keep_signals=False)
            await eventually(lambda: person.prompts == 3, what="the prompt is back", seconds=40)
    finally:
        leave.set()
