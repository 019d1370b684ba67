"""A browser that stops reading the inbox' stream: what waits for it is bounded, and nothing is lost to it."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

from everturn import Client, Conversation
from everturn.web import stream
from everturn.web.app import Inbox
from everturn.web.stream import Outbox, ServerSentEvent
from tests.support.waiting import eventually
from tests.ui.inbox import served

TEXT_CHARS = 200_000
MESSAGES = 40
"""Eight megabytes: more than the sockets' own buffers hold."""


@pytest.fixture
async def long(client: Client) -> AsyncIterator[Conversation]:
    """No worker runs: the messages stand in the history as they came."""
    conversation = await client.start("nobody", "0" * TEXT_CHARS)
    for number in range(1, MESSAGES):
        await conversation.send(f"{number % 10}" * TEXT_CHARS)
    yield conversation
    await client.temporal.get_workflow_handle(conversation.id).terminate()


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> list[stream.Stream]:
    made: list[stream.Stream] = []
    begin = stream.Stream.__init__

    def remembered(self: stream.Stream, *args: Any, **options: Any) -> None:
        begin(self, *args, **options)
        made.append(self)

    monkeypatch.setattr(stream.Stream, "__init__", remembered)
    return made


@asynccontextmanager
async def asking(address: str, conversation: Conversation, since: str = "") -> AsyncIterator[asyncio.StreamReader]:
    """A request whose answer is read only when the caller does."""
    parts = urlsplit(address)
    bare = socket.socket()
    bare.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
    bare.setblocking(False)
    await asyncio.get_running_loop().sock_connect(bare, (parts.hostname, parts.port))
    reader, writer = await asyncio.open_connection(sock=bare, limit=16_384)
    last = f"Last-Event-ID: {since}\r\n" if since else ""
    writer.write(
        f"GET /api/stream?conversation={conversation.id} HTTP/1.0\r\nHost: {parts.netloc}\r\n{last}\r\n".encode()
    )
    try:
        yield reader
    finally:
        writer.close()


class Heard:
    """The messages of the conversation, by their first characters, and the last cursor."""

    def __init__(self) -> None:
        self.digits = ""
        self.cursor = ""
        self._rest = b""

    def feed(self, data: bytes) -> None:
        *whole, self._rest = (self._rest + data).split(b"\n\n")
        for block in whole:
            fields = dict(line.split(": ", 1) for line in block.decode().split("\n") if ": " in line)
            if "event" in fields or "data" not in fields:
                continue
            self.cursor = fields["id"]
            for event in json.loads(fields["data"]):
                if event["kind"] == "message_received":
                    (part,) = event["message"]["parts"]
                    assert part["text"] == part["text"][0] * TEXT_CHARS
                    self.digits += part["text"][0]


ALL = "".join(str(number % 10) for number in range(MESSAGES))


async def test_what_waits_for_it_is_bounded_and_all_of_it_comes_when_it_reads_on(
    client: Client, long: Conversation, streams: list[stream.Stream]
) -> None:
    most = stream.MAX_QUEUED_CHARS + 2 * TEXT_CHARS
    async with served(client) as address, asking(address, long) as reader:
        await eventually(
            lambda: streams and streams[0]._outbox.chars >= stream.MAX_QUEUED_CHARS, what="the outbox is full"
        )
        follower = streams[0]._watchers[1]
        await eventually(lambda: not follower.done() and streams[0]._outbox.chars <= most, what="and stays so")
        heard, seen = Heard(), 0
        while len(heard.digits) < MESSAGES:
            heard.feed(await reader.read(100_000))
            seen = max(seen, streams[0]._outbox.chars)
    assert heard.digits == ALL
    assert seen <= most


async def test_one_that_takes_nothing_for_long_is_let_go_and_goes_on_where_it_was(
    client: Client, long: Conversation, streams: list[stream.Stream]
) -> None:
    heard = Heard()
    async with served(client, stuck_seconds=0.3) as address:
        async with asking(address, long) as reader:
            await eventually(lambda: streams and all(watcher.done() for watcher in streams[0]._watchers or [None]))
            assert streams[0]._outbox.chars == 0, "nothing is kept for it"
            while data := await reader.read(100_000):  # the stream ends as soon as it reads on
                heard.feed(data)
        assert heard.cursor
        assert heard.digits == ALL[: len(heard.digits)] != ALL
    async with served(client) as address, asking(address, long, since=heard.cursor) as reader:
        while len(heard.digits) < MESSAGES:
            heard.feed(await reader.read(100_000))
    assert heard.digits == ALL


async def test_of_several_lists_only_the_last_is_told_and_events_in_a_row_are_one() -> None:
    box = Outbox()
    box.put_list(ServerSentEvent("conversations", "1"))
    for number in range(3):
        await box.put(ServerSentEvent("", f"{number}", f"run/{number}"))
    await box.put(ServerSentEvent("ended", "{}"))
    box.put_list(ServerSentEvent("conversations", "2"))
    assert await box.take_all() == [
        ServerSentEvent("", "[0,1,2]", "run/2"),
        ServerSentEvent("ended", "{}"),
        ServerSentEvent("conversations", "2"),
    ]


async def test_who_puts_in_waits_for_room_and_not_longer() -> None:
    box, put = Outbox(max_chars=10), 0

    async def fill() -> None:
        nonlocal put
        for number in range(10):
            await box.put(ServerSentEvent("", "xxxxx", str(number)))
            put = number

    filling = asyncio.create_task(fill())
    taken_ids = ""
    while not filling.done():
        for event in await box.take_all():
            taken_ids += event.id
        assert box.chars <= 15
        await asyncio.sleep(0)
    assert put == 9
    if box.chars:
        taken_ids += "".join(event.id for event in await box.take_all())
    assert taken_ids[-1] == "9"


async def test_an_inbox_that_stops_lets_its_streams_end(client: Client) -> None:
    inbox = Inbox(client)
    made = stream.Stream(client, inbox._lists, hello={}, conversation_id="", since="")
    told = made.chunks()
    assert b"hello" in await anext(told)
    made.end()
    assert [chunk async for chunk in told] == []
