"""The inbox and other people's front ends with EVERTURN_LIVE=http: text that comes straight from the worker."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from everturn import Agent, Client, Conversation, ui
from everturn.devserver import DevServer
from everturn.heartbeats.profiles import PROFILES
from everturn.testing import ScriptedModel, slow
from everturn.web.app import Inbox
from tests.support.agents import agent_on, hosting
from tests.support.live_text import UNHEARD
from tests.support.pages import serving
from tests.support.prepared import killed_at_the_end
from tests.support.waiting import WAIT_SECONDS, eventually
from tests.ui.inbox import address_of, everturn_web

Scripted = Callable[..., ScriptedModel]

ROOT = Path(__file__).parents[2]

TEXT = "".join(f"word {number}, " for number in range(40))

DOOMED = """
import asyncio, sys
from everturn import Agent, Client, Model, Worker

async def main():
    client = await Client.connect(sys.argv[1], task_queue=sys.argv[2])
    clerk = Agent("clerk", model=Model("scripted:demo", base_url=sys.argv[3]))
    await Worker(client, agents=[clerk], heartbeats="thrifty").run()

asyncio.run(main())
"""


@pytest.fixture(autouse=True)
def live(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERTURN_LIVE", "http")


@pytest.fixture
def unheard(monkeypatch: pytest.MonkeyPatch) -> None:
    """No worker of this process sends a heartbeat by itself."""
    monkeypatch.setitem(PROFILES, "thrifty", UNHEARD)


@pytest.fixture
def go_on() -> Iterator[threading.Event]:
    held = threading.Event()
    yield held
    held.set()


@pytest.fixture
async def http(client: Client) -> AsyncIterator[httpx.AsyncClient]:
    """The three doors, in one application."""
    options: Any = {"agent": "clerk", "authorize": ui.anybody}
    inbox = Inbox(client)
    doors = [Mount("/chat", ui.ai_sdk(client, **options)), Mount("/ag-ui", ui.ag_ui(client, **options))]
    app = Starlette(routes=[*doors, Mount("/", inbox.app)])
    async with serving(app) as address, httpx.AsyncClient(base_url=address, timeout=WAIT_SECONDS) as http:
        yield http
        inbox.end_streams()


async def lines_of(answer: httpx.Response) -> AsyncIterator[str]:
    """The lines of a stream of events. httpx's own end at U+2028 and others, too, which may be in a line of data."""
    rest = b""
    async for piece in answer.aiter_bytes():
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield line.decode().rstrip("\r")


@dataclass
class Shown:
    """What a page has been told, while it reads."""

    told: list[dict[str, Any]] = field(default_factory=list)

    async def read(self, http: httpx.AsyncClient, method: str, path: str, body: Any = None) -> None:
        async with http.stream(method, path, json=body) as answer:
            assert answer.status_code == 200, await answer.aread()
            async for line in lines_of(answer):
                if line == "event: ended":
                    return  # the inbox's stream stays open
                if line.startswith("data: ") and line != "data: [DONE]":
                    said = json.loads(line.removeprefix("data: "))
                    self.told += said if isinstance(said, list) else [said]

    @property
    def text(self) -> str:
        """Of the reply, as the page shows it."""
        text = ""
        for one in self.told:
            if one.get("type") in ("text-delta", "TEXT_MESSAGE_CONTENT"):
                text += one["delta"]
            elif one.get("kind") == "text_delta":
                text += one["text"]
            elif one.get("kind") == "turn_retried":
                text = ""
        return text

    @property
    def retried(self) -> int:
        return [one.get("kind") for one in self.told].count("turn_retried")


Door = Callable[[str], tuple[str, str, Any]]
"""How a page asks for a chat's answer: method, path and body."""


def ai_sdk(chat: str) -> tuple[str, str, Any]:
    message = {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "Go"}]}
    return "POST", "/chat/", {"id": chat, "messages": [message]}


def ai_sdk_again(chat: str) -> tuple[str, str, Any]:
    return "GET", f"/chat/{chat}/stream", None


def ag_ui(chat: str) -> tuple[str, str, Any]:
    message = {"id": "m1", "role": "user", "content": "Go"}
    return "POST", "/ag-ui/", {"threadId": chat, "runId": "r1", "messages": [message]}


def ag_ui_again(chat: str) -> tuple[str, str, Any]:
    return "POST", "/ag-ui/", {"threadId": chat, "runId": "r2", "messages": []}


def inbox(chat: str) -> tuple[str, str, Any]:
    return "GET", f"/api/stream?conversation=clerk::{chat}", None


DOORS = pytest.mark.parametrize(
    ("door", "again"), [(inbox, inbox), (ai_sdk, ai_sdk_again), (ag_ui, ag_ui_again)], ids=["inbox", "ai_sdk", "ag_ui"]
)


async def begun(client: Client, agent: Agent, door: Door) -> tuple[str, Conversation]:
    """A chat. The inbox looks at conversations that there are; the other pages begin theirs."""
    chat = uuid4().hex
    if door is inbox:
        await client.start(agent, "Go", id=f"clerk::{chat}", stream=True, keep_open=timedelta(minutes=5))
    return chat, client.conversation(f"clerk::{chat}")


async def heartbeats(conversation: Conversation, client: Client) -> int:
    """How many of the turn that runs said something."""
    described = await client.temporal.get_workflow_handle(conversation.id).describe()
    [turn] = described.raw_description.pending_activities
    return len(turn.heartbeat_details.payloads)


@pytest.mark.usefixtures("unheard")
@DOORS
async def test_a_page_shows_text_while_it_is_written_and_no_heartbeat_carried_it(
    client: Client, scripted: Scripted, http: httpx.AsyncClient, go_on: threading.Event, door: Door, again: Door
) -> None:
    agent = agent_on(scripted([slow(TEXT, after=5, until=go_on)]))
    first, late = Shown(), Shown()
    async with (
        hosting(client, agent, heartbeats="thrifty"),
        asyncio.timeout(WAIT_SECONDS),
        asyncio.TaskGroup() as pages,
    ):
        chat, conversation = await begun(client, agent, door)
        pages.create_task(first.read(http, *door(chat)))
        await eventually(lambda: first.text, what="it is shown")
        pages.create_task(late.read(http, *again(chat)))
        await eventually(lambda: len(late.text) >= len(first.text), what="who comes late is told it from its beginning")
        assert TEXT.startswith(first.text)
        assert TEXT.startswith(late.text)
        assert await heartbeats(conversation, client) == 0
        assert not go_on.is_set()
        go_on.set()
        await conversation.reply()
        await conversation.close()
    assert (first.text, late.text) == (TEXT, TEXT)


@DOORS
async def test_a_page_sees_all_of_the_text_once_though_the_worker_that_wrote_it_is_killed(
    server: DevServer,
    client: Client,
    scripted: Scripted,
    http: httpx.AsyncClient,
    go_on: threading.Event,
    door: Door,
    again: Door,
) -> None:
    second = threading.Event()
    model = scripted([slow(TEXT, after=5, until=go_on), slow(TEXT, after=9, until=second)], order="arrival")
    agent, shown, back = agent_on(model), Shown(), Shown()
    command = ["-c", DOOMED, server.address, client.task_queue, model.base_url]
    try:
        async with asyncio.timeout(2 * WAIT_SECONDS), asyncio.TaskGroup() as pages:
            with killed_at_the_end(*command):
                chat, conversation = await begun(client, agent, door)
                pages.create_task(shown.read(http, *door(chat)))
                await eventually(lambda: shown.text, what="the first worker's text is shown")
                before = len(shown.text)
            async with hosting(client, agent, heartbeats="thrifty"):
                await eventually(lambda: len(model.requests) == 2, what="the model is asked again")
                pages.create_task(back.read(http, *again(chat)))
                await eventually(lambda: len(back.text) > before, what="the second worker's text is shown")
                assert TEXT.startswith(back.text)
                second.set()
                await conversation.reply()
                await conversation.close()
    finally:
        second.set()
    assert (shown.text, back.text) == (TEXT, TEXT)
    assert shown.retried == (door is inbox)


@pytest.mark.usefixtures("unheard")
async def test_everturn_web_as_a_process_of_its_own_shows_it_too(
    server: DevServer, client: Client, scripted: Scripted, go_on: threading.Event
) -> None:
    agent, shown = agent_on(scripted([slow(TEXT, after=5, until=go_on)])), Shown()
    with everturn_web(server) as web:
        try:
            async with hosting(client, agent, heartbeats="thrifty"), asyncio.timeout(WAIT_SECONDS):
                chat, conversation = await begun(client, agent, inbox)
                address = await address_of(web)
                browser = httpx.AsyncClient(base_url=address, timeout=WAIT_SECONDS)
                async with browser as http, asyncio.TaskGroup() as page:
                    page.create_task(shown.read(http, *inbox(chat)))
                    await eventually(lambda: shown.text, what="it is shown")
                    assert await heartbeats(conversation, client) == 0
                    go_on.set()
                    await conversation.reply()
                    await conversation.close()
        finally:
            web.kill()
    assert shown.text == TEXT
