"""The list of conversations, read once for all pages with the same filter."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints
from temporalio.service import RPCError

from everturn.client.client import Client
from everturn.client.listing import ListedConversation
from everturn.errors import EverturnError
from everturn.tenants.metadata import in_words
from everturn.text.json_text import json_text
from everturn.web.list_previews import Glances

FOR_PEOPLE: Final = ("awaiting_approval", "awaiting_answer", "stalled", "stuck")
"""The states that only a person can end."""

NEWEST = 200
"""How many conversations are shown; of each state that waits for a person, as many again."""

MOST_LISTED: Final = 2_000
"""The most that a page can ask for."""

GLANCE_SECONDS = 1.0
LOAD = 4
"""Reading the list takes at most a fifth of the time: slow reads are done less often, but at least every 5 seconds."""
LONGEST_PAUSE_SECONDS = 5.0

State = Literal["waiting", "stalled", "running", "paused", "idle", "over"]

_STATUSES: Final[dict[str, tuple[str | None, ...]]] = {
    "waiting": ("awaiting_approval", "awaiting_answer"),
    "stalled": ("stalled", "stuck"),
    "running": ("running",),
    "paused": ("paused",),
    "idle": ("idle",),
    "over": (None,),  # everything that has ended; some ended without saying how
}
_SEVERAL: Final = frozenset(status for statuses in _STATUSES.values() for status in statuses if status)

_Words = Annotated[str, StringConstraints(max_length=200, strip_whitespace=True)]


class Filter(BaseModel):
    """Which conversations a page shows, as its address says."""

    model_config = ConfigDict(frozen=True)

    q: _Words = ""
    """Words in the id, agent, model, tenant or first message. The index can only search for beginnings."""
    state: State | None = None
    agent: _Words = ""
    tenant: _Words = ""
    after: AwareDatetime | None = None
    before: AwareDatetime | None = None
    limit: int = Field(default=0, ge=0, le=MOST_LISTED)
    """0 means NEWEST."""

    def by_index(self) -> dict[str, Any]:
        """The filters for Temporal's index, without the state and the words."""
        return {
            **({"agent": self.agent} if self.agent else {}),
            **({"tenant": self.tenant} if self.tenant else {}),
            **({"started_after": self.after} if self.after else {}),
            **({"started_before": self.before} if self.before else {}),
        }


class ConversationLists:
    """One list for each filter in use."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._glances = Glances(client)
        self._lists: dict[Filter, _ConversationList] = {}

    async def watch(self, wanted: Filter) -> AsyncIterator[str]:
        """The list as JSON, now and after each change: `rows`, `counts` by status, whether there are `more`, and
        `trouble` if it can't be read."""
        found = self._lists.get(wanted)
        if found is None:
            found = self._lists[wanted] = _ConversationList(self._client, self._glances, wanted)
        try:
            async for told in found.watch():
                yield told
        finally:
            if not found.lookers:
                self._lists.pop(wanted, None)

    def stop(self) -> None:
        self._glances.stop()


class _ConversationList:
    """Reads the list for as long as somebody watches, and tells all watchers of changes."""

    def __init__(self, client: Client, glances: Glances, wanted: Filter) -> None:
        self._client = client
        self._glances = glances
        self._wanted = wanted
        self._limit = wanted.limit or NEWEST
        self._told = ""
        self._changed = asyncio.Condition()
        self.lookers = 0
        self._reading: asyncio.Task[None] | None = None

    async def watch(self) -> AsyncIterator[str]:
        self.lookers += 1
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
            self.lookers -= 1
            if not self.lookers and self._reading:
                self._reading.cancel()
                self._reading, self._told = None, ""

    async def _read(self) -> None:
        rows: list[ListedConversation] = []
        about: dict[str, Any] = {"counts": {}, "more": False}
        while True:
            began = time.monotonic()
            try:
                rows, about = await self._glance()
            except (EverturnError, RPCError) as error:
                about = {**about, "trouble": str(error)}
            await self._tell(rows, about)
            pause = min(max(GLANCE_SECONDS, LOAD * (time.monotonic() - began)), LONGEST_PAUSE_SECONDS)
            # What the index lacks comes bit by bit: each bit is shown at once.
            async for _ in self._glances.look(rows, seconds=pause):
                await self._tell(rows, about)

    async def _tell(self, rows: list[ListedConversation], about: dict[str, Any]) -> None:
        shown = [self._row(one) for one in rows if self._is_wanted(one)]
        async with self._changed:
            self._told = json_text({"rows": shown, **about})
            self._changed.notify_all()

    async def _glance(self) -> tuple[list[ListedConversation], dict[str, Any]]:
        wanted, indexed = self._wanted, await self._client.indexed()
        asked: list[dict[str, Any]] = [{}]
        if indexed:
            statuses = _STATUSES[wanted.state] if wanted.state else (None, *FOR_PEOPLE)
            asked = [{"status": one, **({"ended": True} if wanted.state == "over" else {})} for one in statuses]
            if wanted.q:
                asked += [{**one, "search": wanted.q} for one in asked]
        lists = await asyncio.gather(*[self._some(**one) for one in asked])
        rows = {one.id: one for listed in reversed(lists) for one in listed}
        by_age = sorted(rows.values(), key=lambda one: one.started_at, reverse=True)
        more = any(len(listed) == self._limit for listed in lists)
        if more and indexed and not (wanted.q or wanted.state):
            counts: dict[str, int] = await self._client.count(**wanted.by_index())
        else:  # all conversations were read, or only those that the filter found are counted
            counts = Counter(one.status for one in by_age if self._is_wanted(one))
        return by_age, {"counts": counts, "more": more}

    async def _some(self, *, status: str | None = None, **more: Any) -> list[ListedConversation]:
        some: list[ListedConversation] = []
        async for one in self._client.conversations(status=status, **self._wanted.by_index(), **more):
            some.append(one)
            if len(some) == self._limit:
                break
        return some

    def _is_wanted(self, one: ListedConversation) -> bool:
        if (state := self._wanted.state) and one.status not in (
            _STATUSES[state] if state != "over" else {one.status} - (_SEVERAL if one.ended_at is None else set())
        ):
            return False
        words = self._wanted.q.lower()
        glance = self._glances.of(one)
        has = (one.id, one.agent, one.model, one.tenant or "", in_words(one.metadata), glance.said, one.status)
        return not words or any(words in text.lower() for text in (*has, *(asked.line for asked in glance.asks)))

    def _row(self, one: ListedConversation) -> dict[str, Any]:
        return {
            **vars(one),
            "started_at": _written(one.started_at),
            "ended_at": _written(one.ended_at),
            **self._glances.of(one).as_json(),
        }


def _written(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment else None
