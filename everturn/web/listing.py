"""The list of conversations, read once for all pages that show it."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, Final

from temporalio.service import RPCError

from everturn.client.client import Client
from everturn.client.listing import ListedConversation
from everturn.errors import EverturnError

FOR_PEOPLE: Final = ("awaiting_approval", "awaiting_answer", "stalled", "stuck")
"""What only a person ends."""

NEWEST = 200
"""So many conversations are shown, beside those that wait for a person: of each such state, as many again."""

GLANCE_SECONDS = 1.0
LOAD = 10
"""A glance that takes long is taken less often: a tenth of the time, but each five seconds at least."""
LONGEST_PAUSE_SECONDS = 5.0


class ConversationList:
    """Reads the list while somebody looks, and tells each who looks when it has changed."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._told = ""
        self._changed = asyncio.Condition()
        self._lookers = 0
        self._reading: asyncio.Task[None] | None = None

    async def watch(self) -> AsyncIterator[str]:
        """The list as JSON, now and after each change: `rows`, `counts` by status, and `trouble` if there is one."""
        self._lookers += 1
        if self._reading is None:
            self._reading = asyncio.create_task(self._read())
        seen = ""
        try:
            while True:
                async with self._changed:
                    while self._told in ("", seen):
                        await self._changed.wait()
                    seen = self._told
                yield seen
        finally:
            self._lookers -= 1
            if not self._lookers and self._reading:
                self._reading.cancel()
                self._reading, self._told = None, ""

    async def _read(self) -> None:
        last: dict[str, Any] = {"rows": [], "counts": {}}
        while True:
            began = time.monotonic()
            try:
                last = await self._glance()
            except (EverturnError, RPCError) as error:
                last = {**last, "trouble": str(error)}
            async with self._changed:
                self._told = json.dumps(last, ensure_ascii=False)
                self._changed.notify_all()
            took = time.monotonic() - began
            await asyncio.sleep(min(max(GLANCE_SECONDS, LOAD * took), LONGEST_PAUSE_SECONDS))

    async def _glance(self) -> dict[str, Any]:
        indexed = await self._client.indexed()
        lists = await asyncio.gather(*map(self._some, (None, *FOR_PEOPLE) if indexed else (None,)))
        rows = {one.id: one for listed in reversed(lists) for one in listed}
        by_age = sorted(rows.values(), key=lambda one: one.started_at, reverse=True)
        counts = await self._client.count() if indexed else Counter(one.status for one in by_age)
        return {"rows": [_row(one) for one in by_age], "counts": counts}

    async def _some(self, status: str | None) -> list[ListedConversation]:
        some: list[ListedConversation] = []
        async for one in self._client.conversations(status=status):
            # The index goes on saying what a conversation was that was terminated while it waited.
            if status is None or one.status == status:
                some.append(one)
            if len(some) == NEWEST:
                break
        return some


def _row(one: ListedConversation) -> dict[str, Any]:
    ended_at = one.ended_at.isoformat() if one.ended_at else None
    return {**vars(one), "started_at": one.started_at.isoformat(), "ended_at": ended_at}
