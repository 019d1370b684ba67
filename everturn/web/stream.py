"""Server-sent events: one connection for each page, with the list of conversations and the events of one of them.

Each batch of events carries the cursor of its last one as its `id:`. A browser that comes back sends that along, and
the events go on behind it: what a dropped connection or a restart of anything swallowed is told then.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from temporalio.service import RPCError

from everturn.client import Client
from everturn.errors import EverturnError, NotFound
from everturn.events import Event
from everturn.web.fleet import Fleet
from everturn.web.past import latest_run

BEAT_SECONDS = 15.0
"""Something is sent at least so often: proxies cut what is silent, and each side learns when the other has gone."""

RETRY_SECONDS = 1.0

Told = tuple[str, str, str]
"""An event's name on the wire, its data, and its id; one of the conversation's own has no name."""


class Stream:
    """`chunks` goes on until the page leaves, or `end` is called."""

    def __init__(
        self, client: Client, fleet: Fleet, *, hello: dict[str, Any], conversation_id: str, since: str
    ) -> None:
        self._client = client
        self._fleet = fleet
        self._hello = hello
        self._conversation_id = conversation_id
        self._since = since
        self._outbox: asyncio.Queue[Event | Told | None] = asyncio.Queue()

    def end(self) -> None:
        self._outbox.put_nowait(None)

    async def chunks(self) -> AsyncIterator[bytes]:
        watchers = [asyncio.create_task(self._watch_fleet())]
        if self._conversation_id:
            watchers.append(asyncio.create_task(self._follow()))
        try:
            yield f"retry: {RETRY_SECONDS * 1000:.0f}\n\n".encode() + _written(("hello", json.dumps(self._hello), ""))
            while True:
                try:
                    async with asyncio.timeout(BEAT_SECONDS):
                        items = [await self._outbox.get()]
                except TimeoutError:
                    yield _written(("beat", "{}", ""))
                    continue
                while not self._outbox.empty():
                    items.append(self._outbox.get_nowait())
                for told in _in_batches(items):
                    yield _written(told)
                if None in items:
                    return
        finally:
            for watcher in watchers:
                watcher.cancel()
            await asyncio.gather(*watchers, return_exceptions=True)

    async def _watch_fleet(self) -> None:
        async for listed in self._fleet.watch():
            self._tell("fleet", listed)

    async def _follow(self) -> None:
        """Puts the conversation's events into the outbox, through every trouble with the server."""
        cursor = self._since
        while True:
            try:
                if cursor:
                    self._tell("resumed", "{}")
                else:
                    run = await latest_run(self._client, self._conversation_id)
                    cursor = f"{run.run_id}/0"
                    self._tell("opened", json.dumps({"id": self._conversation_id, **vars(run)}), cursor)
                async for event in self._client.conversation(self._conversation_id).events(cursor):
                    cursor = event.cursor or cursor
                    self._outbox.put_nowait(event)
                self._tell("ended", "{}")
                return
            except NotFound as error:
                if not cursor:
                    self._tell("missing", json.dumps({"error": str(error)}))
                    return
                cursor = ""  # the run of the cursor was deleted: begin again with what there is
            except (EverturnError, RPCError) as error:
                self._tell("trouble", json.dumps({"error": str(error)}))
                await asyncio.sleep(RETRY_SECONDS)

    def _tell(self, name: str, data: str, id: str = "") -> None:  # noqa: A002 - the wire's own word
        self._outbox.put_nowait((name, data, id))


def _in_batches(items: list[Event | Told | None]) -> list[Told]:
    """What stands in the outbox, with events in a row as one message, and only the last of several lists."""
    batches: list[Told] = []
    events: list[Event] = []
    last_list = max((at for at, item in enumerate(items) if isinstance(item, tuple) and item[0] == "fleet"), default=-1)
    for at, item in enumerate([*items, None]):
        if isinstance(item, tuple) and item[0] == "fleet" and at != last_list:
            continue
        if item is not None and not isinstance(item, tuple):
            events.append(item)
            continue
        if events:
            data = ",".join(event.model_dump_json() for event in events)
            batches.append(("", f"[{data}]", events[-1].cursor))
            events = []
        if isinstance(item, tuple):
            batches.append(item)
    return batches


def _written(told: Told) -> bytes:
    name, data, id = told  # noqa: A001
    # JSON has no line breaks of its own, so the data is one line.
    lines = [f"event: {name}"] if name else []
    lines += [f"id: {id}"] if id else []
    return "\n".join([*lines, f"data: {data}", "", ""]).encode(errors="replace")
