"""Server-sent events: one connection for each page, with the list of conversations and the events of one of them.

Each batch of events carries the cursor of its last one as its `id:`. A browser that reconnects sends that id, and the
events go on after it, so nothing is lost when a connection drops or a process restarts. A browser that stops reading is
disconnected, and reconnects in the same way.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, Final

from temporalio.service import RPCError

from everturn.client.client import Client
from everturn.errors import EverturnError, NotFound
from everturn.text.json_text import json_text
from everturn.web.earlier_messages import latest_run
from everturn.web.listing import ConversationLists, ListFilter

BEAT_SECONDS = 15.0
"""Something is sent at least this often: proxies cut silent connections, and each side notices if the other is gone."""

RETRY_SECONDS = 1.0

STUCK_SECONDS = 60.0
"""A page that reads nothing for this long is no longer followed: its stream ends as soon as it reads on."""

MAX_QUEUED_CHARS: Final = 1_000_000
"""How many characters may wait. One event more is let in, however long it is."""


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """One server-sent event. An event of the conversation has no name; its id is its cursor."""

    name: str
    data: str
    id: str = ""


class Outbox:
    """What one page has still to be sent. It is bounded, so a browser that stops reading costs no memory.

    No event is dropped: `put` waits until there is room, and meanwhile no more of the history is read. Of the list of
    conversations, only the newest version is kept.
    """

    def __init__(self, *, max_chars: int = MAX_QUEUED_CHARS) -> None:
        self._max_chars = max_chars
        self._items: list[ServerSentEvent] = []
        self.chars = 0
        """How many characters wait to be sent."""
        self._list: ServerSentEvent | None = None
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    async def put(self, event: ServerSentEvent) -> None:
        """Waits for room, then puts it in after the earlier ones."""
        while self.chars >= self._max_chars:
            self._room.clear()
            await self._room.wait()
        self._items.append(event)
        self.chars += len(event.data)
        self._news.set()

    def put_list(self, event: ServerSentEvent) -> None:
        """Replaces an earlier version of the list that was not taken yet."""
        self._list = event
        self._news.set()

    async def take_all(self) -> list[ServerSentEvent]:
        """Waits until there is something, then takes it all. Conversation events in a row become one event."""
        await self._news.wait()
        events = _in_batches(self._items)
        if self._list:
            events.append(self._list)
        self.clear()
        return events

    def clear(self) -> None:
        self._items = []
        self.chars = 0
        self._list = None
        self._news.clear()
        self._room.set()


class Stream:
    """The stream for one page. `chunks` goes on until the page disconnects, stops reading, or `end` is called."""

    def __init__(
        self,
        client: Client,
        lists: ConversationLists,
        *,
        hello: dict[str, Any],
        conversation_id: str,
        since: str,
        wanted: ListFilter | None = None,
        stuck_seconds: float = STUCK_SECONDS,
    ) -> None:
        """`wanted`: which conversations to list; None: no list."""
        self._client = client
        self._lists = lists
        self._wanted = wanted
        self._hello = hello
        self._conversation_id = conversation_id
        self._since = since
        self._stuck_seconds = stuck_seconds
        self._outbox = Outbox()
        self._watchers: list[asyncio.Task[None]] = []
        self._over = asyncio.Event()

    def end(self) -> None:
        """Sends nothing more, not even what waits to be sent: a page that reconnects gets that."""
        self._over.set()
        for watcher in self._watchers:
            watcher.cancel()
        self._outbox.clear()

    async def chunks(self) -> AsyncIterator[bytes]:
        if self._wanted:
            self._watchers.append(asyncio.create_task(self._watch_list(self._wanted)))
        if self._conversation_id:
            self._watchers.append(asyncio.create_task(self._follow_conversation()))
        over = asyncio.create_task(self._over.wait())
        try:
            with self._end_if_stuck():
                first = ServerSentEvent("hello", json_text(self._hello))
                yield f"retry: {RETRY_SECONDS * 1000:.0f}\n\n".encode() + _event_bytes(first)
            while not self._over.is_set():
                for event in await self._next_events(over):
                    with self._end_if_stuck():
                        yield _event_bytes(event)
                    if self._over.is_set():
                        break
        finally:
            for task in (over, *self._watchers):
                task.cancel()
            await asyncio.gather(over, *self._watchers, return_exceptions=True)

    async def _next_events(self, over: asyncio.Task[Any]) -> list[ServerSentEvent]:
        """What to send next; a heartbeat if there is nothing for a while, and nothing if the stream is over."""
        news = asyncio.create_task(self._outbox.take_all())
        try:
            await asyncio.wait((news, over), timeout=BEAT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if news.done():
                return news.result()
        finally:
            news.cancel()
        if over.done():
            return []
        return [ServerSentEvent("beat", "{}")]

    @contextlib.contextmanager
    def _end_if_stuck(self) -> Iterator[None]:
        """Ends the stream if the page takes too long to read what the block sends."""
        timer = asyncio.get_running_loop().call_later(self._stuck_seconds, self.end)
        try:
            yield
        finally:
            timer.cancel()

    async def _watch_list(self, wanted: ListFilter) -> None:
        async for listed in self._lists.watch(wanted):
            self._outbox.put_list(ServerSentEvent("conversations", listed))

    async def _follow_conversation(self) -> None:
        """Puts the conversation's events into the outbox. If the server can't be reached, it tries again."""
        cursor = self._since
        while True:
            try:
                if cursor:
                    await self._put_event("resumed", "{}")
                else:
                    run = await latest_run(self._client, self._conversation_id)
                    cursor = f"{run.run_id}/0"
                    await self._put_event("opened", json_text({"id": self._conversation_id, **vars(run)}), cursor)
                # What sub-agents wait for, the page asks for: see children.py.
                async for event in self._client.conversation(self._conversation_id).events(cursor, children=False):
                    cursor = event.cursor or cursor
                    await self._outbox.put(ServerSentEvent("", event.model_dump_json(), event.cursor))
                await self._put_event("ended", "{}")
                return
            except NotFound as error:
                if not cursor:
                    await self._put_event("missing", json_text({"error": str(error)}))
                    return
                cursor = ""  # the cursor's run was deleted: begin again with the latest run
            except (EverturnError, RPCError) as error:
                await self._put_event("trouble", json_text({"error": str(error)}))
                await asyncio.sleep(RETRY_SECONDS)

    async def _put_event(self, name: str, data: str, id: str = "") -> None:  # noqa: A002 - the wire's own word
        await self._outbox.put(ServerSentEvent(name, data, id))


def _event_bytes(event: ServerSentEvent) -> bytes:
    # JSON has no line breaks of its own, so the data is one line.
    lines: list[str] = []
    if event.name:
        lines.append(f"event: {event.name}")
    if event.id:
        lines.append(f"id: {event.id}")
    return "\n".join([*lines, f"data: {event.data}", "", ""]).encode(errors="replace")


def _in_batches(items: list[ServerSentEvent]) -> list[ServerSentEvent]:
    batches: list[ServerSentEvent] = []
    events: list[ServerSentEvent] = []
    for item in [*items, None]:
        if item is not None and not item.name:
            events.append(item)
            continue
        if events:
            batches.append(ServerSentEvent("", f"[{','.join(event.data for event in events)}]", events[-1].id))
            events = []
        if item is not None:
            batches.append(item)
    return batches
