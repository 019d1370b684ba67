"""What text straight from the worker has of its own: what all lanes have in common is in test_live_lanes.py."""

from __future__ import annotations

import asyncio
import threading
from base64 import b64decode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from everturn import Client, Encryption
from everturn.cli.doctor import _live_findings
from everturn.devserver import DevServer
from everturn.errors import InvalidSetting
from everturn.heartbeats.details import LiveAt
from everturn.history.reader import RunReading
from everturn.history.steps import TurnScheduled
from everturn.live.configured_lane import lane_of
from everturn.live.lane import TurnKey
from everturn.live.text_server import path_of
from everturn.settings import Settings
from everturn.storage.data_converter import data_converter
from everturn.testing import ScriptedModel, slow
from tests.support.agents import agent_on, hosting
from tests.support.live_text import STORY, text_until
from tests.support.ports import free_port
from tests.support.waiting import eventually

Scripted = Callable[..., ScriptedModel]


@pytest.fixture(autouse=True)
def live(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERTURN_LIVE", "http")


async def turn_of(client: Client, conversation_id: str) -> tuple[TurnKey, LiveAt]:
    """The turn that runs, and where its request says that its text is."""
    handle = client.temporal.get_workflow_handle(conversation_id)
    described = await handle.describe()
    [turn] = described.raw_description.pending_activities
    key = TurnKey(client.temporal.namespace, described.run_id or "", turn.activity_id)
    reader = RunReading(client.temporal).reader
    steps = [await reader.read_event(event) for event in (await handle.fetch_history()).events]
    [live_at] = [
        step.request.live_at
        for step in steps
        if isinstance(step, TurnScheduled) and step.activity_id == key.activity_id
    ]
    assert live_at is not None
    return key, live_at


def url_of(key: TurnKey, at: LiveAt) -> str:
    return at.url + path_of(key.namespace, key.run_id, key.activity_id)


class Between:
    """A proxy between client and worker, which can be cut."""

    def __init__(self, to_port: int) -> None:
        self._to_port = to_port
        self._open: set[asyncio.StreamWriter] = set()
        self.taken = 0
        """Connections so far."""

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[int]:
        server = await asyncio.start_server(self._forward, "127.0.0.1", 0)
        yield server.sockets[0].getsockname()[1]
        server.close()
        self.cut()

    def cut(self) -> None:
        for writer in self._open:
            writer.transport.abort()

    def has_taken_more_than(self, connections: int) -> bool:
        return self.taken > connections

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._to_port)
        self._open |= {writer, back}
        self.taken += 1

        async def pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            with suppress(OSError):
                while data := await source.read(64):  # cut anywhere
                    target.write(data)
                    await target.drain()
            target.close()

        await asyncio.gather(pass_on(reader, back), pass_on(there, writer))


async def test_a_connection_that_breaks_is_made_again_and_goes_on_where_it_was(
    client: Client, scripted: Scripted, go_on: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    agent = agent_on(scripted([slow(STORY, after=5, until=go_on)]))
    between = Between(port)
    async with between.listening() as proxied:
        monkeypatch.setenv("EVERTURN_LIVE_LISTEN", f"127.0.0.1:{port}")
        monkeypatch.setenv("EVERTURN_LIVE_ADDRESS", f"http://127.0.0.1:{proxied}")
        async with hosting(client, agent, heartbeats="thrifty"), asyncio.timeout(60):
            conversation = await client.start(agent, "Go.", stream=True)
            told = conversation.events()
            seen = await text_until(told, bool)
            for cut in (1, 2):
                between.cut()
                rest = asyncio.create_task(text_until(told, lambda _: False)) if cut == 2 else None
                await eventually(partial(between.has_taken_more_than, cut), what="it connects again")
            go_on.set()
            assert rest is not None
            assert seen + await rest == STORY


async def refuses(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


async def never_answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()


def answers(text: bytes) -> Callable[..., Any]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(text)
        writer.close()

    return answer


SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
ELSEWHERE = {
    "breaks off": refuses,
    "a black hole": never_answers,
    "a proxy that lacks it": answers(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n"),
    "another worker": answers(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"),
    "a redirect": answers(b"HTTP/1.1 307 Away\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n"),
    "a login page": answers(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<form>"),
    "no HTTP": answers(b"SSH-2.0-OpenSSH_9.2\r\n"),
    "junk": answers(SSE + b"data: word 0, \n\ndata: e30=\n\ndata: \xff\xff\n\n"),
    "ends at once": answers(SSE + b"event: end\ndata: .\n\n"),
}


@pytest.mark.parametrize("what", [*ELSEWHERE, "nobody"])
async def test_if_the_address_leads_elsewhere_the_text_comes_with_heartbeats(
    client: Client, scripted: Scripted, go_on: threading.Event, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    agent = agent_on(scripted([slow(STORY, after=5, until=go_on)]))
    async with asyncio.timeout(60):
        server = await asyncio.start_server(ELSEWHERE.get(what, refuses), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        if what == "nobody":
            server.close()
        monkeypatch.setenv("EVERTURN_LIVE_ADDRESS", f"http://127.0.0.1:{port}")
        async with hosting(client, agent):
            conversation = await client.start(agent, "Go.", stream=True)
            told = conversation.events()
            seen = await text_until(told, bool)
            assert STORY.startswith(seen)
            go_on.set()
            assert seen + await text_until(told, lambda _: False) == STORY
        server.close()


async def test_a_client_that_does_not_follow_over_http_sees_the_text_with_the_heartbeats(
    client: Client, scripted: Scripted, go_on: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = agent_on(scripted([slow(STORY, after=5, until=go_on)]))
    worker = hosting(client, agent)
    monkeypatch.delenv("EVERTURN_LIVE")
    async with worker, asyncio.timeout(60):
        assert client.live is None
        conversation = await client.start(agent, "Go.", stream=True)
        told = conversation.events()
        seen = await text_until(told, bool)
        go_on.set()
        assert seen + await text_until(told, lambda _: False) == STORY


async def test_text_is_for_who_has_its_turns_token_and_encrypted_as_payloads_are(
    server: DevServer, scripted: Scripted, go_on: threading.Event, tmp_path: Path
) -> None:
    encryption = Encryption({"one": b"k" * 32})
    own = await Client.connect(server.address, task_queue=f"q-{tmp_path.name}", encryption=encryption)
    agent = agent_on(scripted([slow(STORY, after=5, until=go_on), slow(STORY, after=5, until=go_on)], order="arrival"))
    async with hosting(own, agent), asyncio.timeout(60), httpx.AsyncClient(trust_env=False) as http:
        turns = []
        for _ in range(2):
            conversation = await own.start(agent, "Go.", stream=True)
            await text_until(conversation.events(), bool)
            turns.append(await turn_of(own, conversation.id))
        (key, at), (other, at_other) = turns

        async def asked(url: str, token: str | None) -> httpx.Response:
            headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
            return await http.get(url, params={"once": "1"}, headers=headers)

        right = await asked(url_of(key, at), at.token)
        assert right.status_code == 200
        sent = b"".join(
            b64decode(line[6:])
            for line in right.content.splitlines()
            if line.startswith(b"data: ") and line != b"data: ."
        )
        assert sent
        assert b"word" not in sent
        refused = [
            await asked(url_of(key, at), None),
            await asked(url_of(key, at), "x"),
            await asked(url_of(key, at), at.token + "x"),
            await asked(url_of(key, at), at_other.token),
            await asked(url_of(other, at_other), at.token),
            await asked(url_of(TurnKey("default", key.run_id, "none"), at), at.token),
            await asked(at.url + "/", at.token),
        ]
        assert {(one.status_code, one.content) for one in refused} == {(404, b"")}
        assert at.token not in repr(at)
        go_on.set()


async def test_a_turn_that_is_over_leaves_nothing_at_the_worker(
    client: Client, scripted: Scripted, go_on: threading.Event
) -> None:
    agent = agent_on(scripted([slow(STORY, after=5, until=go_on), "Again."]))
    async with hosting(client, agent), asyncio.timeout(60), httpx.AsyncClient(trust_env=False) as http:
        conversation = await client.start(agent, "Go.", stream=True)
        await text_until(conversation.events(), bool)
        key, at = await turn_of(client, conversation.id)
        go_on.set()
        assert await conversation.reply() == STORY
        headers = {"Authorization": f"Bearer {at.token}"}

        async def gone() -> bool:
            return (await http.get(url_of(key, at), headers=headers)).status_code == 404

        await eventually(gone, what="the turn's text is let go")


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"EVERTURN_LIVE_LISTEN": "0.0.0.0:7879"}, "EVERTURN_LIVE_ADDRESS"),
        ({"EVERTURN_LIVE_LISTEN": "here"}, "EVERTURN_LIVE_LISTEN"),
        ({"EVERTURN_LIVE_ADDRESS": "ftp://10.0.0.5"}, "EVERTURN_LIVE_ADDRESS"),
        ({"EVERTURN_LIVE_ADDRESS": "http://user:word@10.0.0.5"}, "EVERTURN_LIVE_ADDRESS"),
    ],
)
def test_an_address_that_is_none_is_refused(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], named: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InvalidSetting, match=named):
        lane_of(Settings.load(), data_converter)


async def test_a_worker_whose_port_is_taken_says_so_and_does_not_begin(
    client: Client, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = await asyncio.start_server(refuses, "127.0.0.1", 0)
    monkeypatch.setenv("EVERTURN_LIVE_LISTEN", f"127.0.0.1:{taken.sockets[0].getsockname()[1]}")
    with pytest.raises(InvalidSetting, match="EVERTURN_LIVE_LISTEN"):
        async with hosting(client, agent_on(scripted([]))):
            pass
    taken.close()


async def test_doctor_says_what_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    [finding] = [entry async for entry in _live_findings(Settings.load())]
    assert (finding.part, finding.state) == ("live text", "ok")
    assert "EVERTURN_LIVE_ADDRESS" in finding.detail
    monkeypatch.setenv("EVERTURN_LIVE_LISTEN", "0.0.0.0:7879")
    [finding] = [entry async for entry in _live_findings(Settings.load())]
    assert finding.state == "wrong"
    monkeypatch.setenv("EVERTURN_LIVE_ADDRESS", "http://10.0.0.5:7879")
    [finding] = [entry async for entry in _live_findings(Settings.load())]
    assert finding.state == "ok"
    assert "http://10.0.0.5:7879" in finding.detail
