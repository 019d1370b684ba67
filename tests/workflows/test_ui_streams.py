"""The streams of both front ends on what seldom happens: silence, a run that ends in the middle, a decision that was
quicker. Over plain HTTP, without Node."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any
from uuid import uuid4

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from everturn import Client, Conversation, ui
from everturn.testing import ScriptedModel, call, slow
from everturn.ui.chats import KEEP_OPEN, Chat, Chats
from everturn.ui.narrator import question_id
from everturn.ui.page_decisions import PageDecision
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.pages import serving
from tests.support.tools import note, refund
from tests.support.waiting import WAIT_SECONDS, eventually, waiting

Scripted = Callable[..., ScriptedModel]

TEXT = "One two three four five six seven eight nine ten."


@pytest.fixture
async def http(client: Client) -> AsyncIterator[httpx.AsyncClient]:
    options: Any = {"agent": "clerk", "authorize": ui.anybody}
    app = Starlette(routes=[Mount("/chat", ui.ai_sdk(client, **options)), Mount("/ag-ui", ui.ag_ui(client, **options))])
    async with serving(app) as address, httpx.AsyncClient(base_url=address, timeout=WAIT_SECONDS) as http:
        yield http


@pytest.fixture
def chat() -> str:
    return uuid4().hex


def said(chat: str, protocol: str) -> tuple[str, dict[str, Any]]:
    """Where to say something, and what."""
    if protocol == "ag-ui":
        return "/ag-ui/", {"threadId": chat, "runId": "r", "messages": [{"id": "m1", "role": "user", "content": "Go"}]}
    message = {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "Go"}]}
    return "/chat/", {"id": chat, "messages": [message]}


class Reading:
    """A stream, while it is read."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    async def read(self, http: httpx.AsyncClient, method: str, path: str, body: Any = None) -> None:
        async with http.stream(method, path, json=body) as answer:
            assert answer.status_code == 200, await answer.aread()
            async for line in answer.aiter_lines():
                self.lines.append(line)

    @property
    def told(self) -> list[dict[str, Any]]:
        data = [line.removeprefix("data: ") for line in self.lines if line.startswith("data: {")]
        return [json.loads(line) for line in data]

    @property
    def text(self) -> str:
        return "".join(one["delta"] for one in self.told if one["type"] in ("text-delta", "TEXT_MESSAGE_CONTENT"))

    @property
    def results(self) -> list[str]:
        kinds = ("tool-output-available", "TOOL_CALL_RESULT")
        return [one["toolCallId"] for one in self.told if one["type"] in kinds]


@pytest.mark.parametrize("protocol", ["ai-sdk", "ag-ui"])
async def test_a_stream_that_has_nothing_to_tell_beats(
    client: Client, scripted: Scripted, http: httpx.AsyncClient, chat: str, bounds: Bounds, protocol: str
) -> None:
    bounds(page_beat_seconds=0.05)
    released, reading = threading.Event(), Reading()
    async with hosting(client, agent_on(scripted([slow(TEXT, after=3, until=released)]))):
        path, body = said(chat, protocol)
        running = asyncio.create_task(reading.read(http, "POST", path, body))
        await eventually(lambda: reading.text and ": beat" in reading.lines[-2:], what="it beats in the middle")
        released.set()
        await running
    assert reading.text == TEXT
    assert reading.lines[0] == ": open"


async def test_an_answer_that_an_earlier_run_began_is_told_from_its_beginning(
    client: Client, scripted: Scripted, http: httpx.AsyncClient, chat: str, bounds: Bounds
) -> None:
    bounds(events=12)
    released = threading.Event()
    calls = [call("note", {"number": number}, id=f"n{number}") for number in range(4)]
    agent = agent_on(scripted([*calls, slow(TEXT, after=3, until=released)]), tools=[note])
    from_start, resumed, back = Reading(), Reading(), Reading()
    async with hosting(client, agent), asyncio.TaskGroup() as readers:
        path, body = said(chat, "ai-sdk")
        readers.create_task(from_start.read(http, "POST", path, body))
        await eventually(lambda: from_start.text, what="it writes")
        conversation = client.conversation(f"clerk::{chat}")
        described = await client.temporal.get_workflow_handle(conversation.id).describe()
        assert described.run_id != described.raw_description.workflow_execution_info.first_run_id
        readers.create_task(resumed.read(http, "GET", f"/chat/{chat}/stream"))
        run = {"threadId": chat, "runId": "r2", "messages": []}
        readers.create_task(back.read(http, "POST", "/ag-ui/", run))
        await eventually(lambda: resumed.text and back.text, what="both write, too")
        released.set()
    for one in (from_start, resumed):
        assert one.results == ["n0", "n1", "n2", "n3"]
        assert one.text == TEXT
        assert one.told[0] == {"type": "start", "messageId": "reply-1"}
    [snapshot] = [one for one in back.told if one["type"] == "MESSAGES_SNAPSHOT"]
    assert [message["role"] for message in snapshot["messages"]] == ["user", *["assistant", "tool"] * 4]
    assert back.text == TEXT


async def test_a_decision_that_was_quicker_by_a_moment_stands_and_is_no_error(
    client: Client, scripted: Scripted, chat: str
) -> None:
    conversation = client.conversation(f"clerk:ann:{chat}")

    class Slower(Conversation):
        """What it decides arrives after somebody else's decision."""

        async def deny(self, *given: Any, **more: Any) -> tuple[str, ...]:
            await conversation.approve("r")
            return await super().deny(*given, **more)

    agent = agent_on(scripted([call("refund", {"order_id": "81", "cents": 5}, id="r"), "Done."]), tools=[refund])
    async with hosting(client, agent):
        await client.start(agent, "Refund order 81", id=conversation.id)
        await waiting(conversation)
        [asked] = (await conversation.status()).waiting
        chats = Chats.from_options(
            client, agent=agent, authorize=ui.anybody, keep_open=KEEP_OPEN, max_body_bytes=9, show_causes=False
        )
        chat_of_ann = Chat(chats, ui.Visitor(name="ann"), client, Slower(client, conversation.id))
        choice = PageDecision(question_id(asked), "r", approved=False)
        assert await chat_of_ann.decide([choice], []) == (True, [])
        assert (await conversation.outcome()).text == "Done."
