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
from everturn.payloads import BATCHED_STATUS
from everturn.tenants.metadata import in_words
from everturn.text.json_text import json_text
from everturn.web.list_previews import ListPreviews

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
    "running": ("running", BATCHED_STATUS),
    "paused": ("paused",),
    "idle": ("idle",),
    "over": (None,),  # everything that has ended; some ended without saying how
}
_SEVERAL: Final = frozenset(status for statuses in _STATUSES.values() for status in statuses if status)

_Words = Annotated[str, StringConstraints(max_length=200, strip_whitespace=True)]


class ListFilter(BaseModel):
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
        filters = {
            "agent": self.agent,
            "tenant": self.tenant,
            "started_after": self.after,
            "started_before": self.before,
        }
        return {name: wanted for name, wanted in filters.items() if wanted}


class ConversationLists:
    """One list for each filter in use."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._previews = ListPreviews(client)
        self._lists: dict[ListFilter, _ConversationList] = {}

    async def watch(self, wanted: ListFilter) -> AsyncIterator[str]:
        """The list as JSON, now and after each change: `rows`, `counts` by status, whether there are `more`, and
        `trouble` if it can't be read."""
        conversation_list = self._lists.get(wanted)
        if conversation_list is None:
            conversation_list = self._lists[wanted] = _ConversationList(self._client, self._previews, wanted)
        try:
            async for list_json in conversation_list.watch():
                yield list_json
        finally:
            if not conversation_list.lookers:
                self._lists.pop(wanted, None)

    def stop(self) -> None:
        self._previews.stop()


class _ConversationList:
    """Reads the list for as long as somebody watches, and tells all watchers of changes."""

    def __init__(self, client: Client, previews: ListPreviews, wanted: ListFilter) -> None:
        self._client = client
        self._previews = previews
        self._wanted = wanted
        self._limit = wanted.limit or NEWEST
        self._told = ""
        self._changed = asyncio.Condition()
        self.lookers = 0
        self._reading: asyncio.Task[None] | None = None

    async def watch(self) -> AsyncIterator[str]:
        self.lookers += 1
        if self._reading is None:
            self._reading = asyncio.create_task(self._keep_reading())
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
                self._reading = None
                self._told = ""

    async def _keep_reading(self) -> None:
        rows: list[ListedConversation] = []
        about: dict[str, Any] = {"counts": {}, "more": False}
        while True:
            began = time.monotonic()
            try:
                rows, about = await self._read_list()
            except (EverturnError, RPCError) as error:
                about = {**about, "trouble": str(error)}
            await self._tell_watchers(rows, about)
            pause = min(max(GLANCE_SECONDS, LOAD * (time.monotonic() - began)), LONGEST_PAUSE_SECONDS)
            # What the index lacks comes bit by bit: each bit is shown at once.
            async for _ in self._previews.fetch_missing(rows, seconds=pause):
                await self._tell_watchers(rows, about)

    async def _tell_watchers(self, rows: list[ListedConversation], about: dict[str, Any]) -> None:
        shown_rows = [self._row_of(conversation) for conversation in rows if self._is_wanted(conversation)]
        async with self._changed:
            self._told = json_text({"rows": shown_rows, **about})
            self._changed.notify_all()

    async def _read_list(self) -> tuple[list[ListedConversation], dict[str, Any]]:
        wanted = self._wanted
        indexed = await self._client.indexed()
        queries: list[dict[str, Any]] = [{}]
        if indexed:
            statuses = _STATUSES[wanted.state] if wanted.state else (None, *FOR_PEOPLE)
            queries = [{"status": status} for status in statuses]
            if wanted.state == "over":
                queries = [{**query, "ended": True} for query in queries]
            if wanted.q:
                queries += [{**query, "search": wanted.q} for query in queries]
        lists = await asyncio.gather(*[self._read_some(**query) for query in queries])
        rows = {conversation.id: conversation for listed in reversed(lists) for conversation in listed}
        by_age = sorted(rows.values(), key=lambda conversation: conversation.started_at, reverse=True)
        more = any(len(listed) == self._limit for listed in lists)
        if more and indexed and not (wanted.q or wanted.state):
            counts: dict[str, int] = await self._client.count(**wanted.by_index())
        else:  # all conversations were read, or only those that the filter found are counted
            counts = Counter(conversation.status for conversation in by_age if self._is_wanted(conversation))
        return by_age, {"counts": counts, "more": more}

    async def _read_some(self, *, status: str | None = None, **more: Any) -> list[ListedConversation]:
        some: list[ListedConversation] = []
        async for conversation in self._client.conversations(status=status, **self._wanted.by_index(), **more):
            some.append(conversation)
            if len(some) == self._limit:
                break
        return some

    def _is_wanted(self, conversation: ListedConversation) -> bool:
        match self._wanted.state:
            case None:
                pass
            case "over":
                if conversation.ended_at is None and conversation.status in _SEVERAL:
                    return False
            case state:
                if conversation.status not in _STATUSES[state]:
                    return False
        words = self._wanted.q.lower()
        preview = self._previews.preview_of(conversation)
        has = (
            conversation.id,
            conversation.agent,
            conversation.model,
            conversation.tenant or "",
            in_words(conversation.metadata),
            preview.said,
            conversation.status,
        )
        return not words or any(words in text.lower() for text in (*has, *(call.line for call in preview.asks)))

    def _row_of(self, conversation: ListedConversation) -> dict[str, Any]:
        return {
            **vars(conversation),
            "started_at": _iso_text(conversation.started_at),
            "ended_at": _iso_text(conversation.ended_at),
            **self._previews.preview_of(conversation).as_json(),
        }


def _iso_text(moment: datetime | None) -> str | None:
    if moment is None:
        return None
    return moment.isoformat()
