"""What the list shows of a conversation beyond Temporal's index: its first message, its waiting calls, its outcome."""

from __future__ import annotations

import asyncio
import json
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, Final

from temporalio.service import RPCError

from everturn.client.client import Client
from everturn.client.listing import ListedConversation
from everturn.client.many_decisions import AT_ONCE
from everturn.errors import EverturnError
from everturn.payloads import WaitingCall
from everturn.records import Outcome
from everturn.text.markdown import unescape

MOST_PREVIEWS_KEPT: Final = 10_000
"""In memory: those that were read least recently go first."""

ASKED_AGAIN_SECONDS: Final = 10.0
"""The waiting calls may change while the index stays the same: two calls of one reply are decided one by one."""

TELL_SECONDS: Final = 0.25
"""How often those who look are told of new previews."""

_LINE_CHARS: Final = 160
_WAITING: Final = ("awaiting_approval", "awaiting_answer")


@dataclass(frozen=True)
class AskedCall:
    """A call that waits."""

    tool: str
    line: str
    """Its arguments, as in `order_id="81"  cents=1200`; if it is a question, the question."""
    needs: str
    since: str
    expires_at: str | None


@dataclass(frozen=True)
class ListPreview:
    said: str = ""
    """The first line of its first message; empty if it has none, or if it is not known yet."""
    asks: tuple[AskedCall, ...] = ()
    outcome: str = ""
    """How it ended, as in Outcome.status; empty if it runs, or if that can't be read."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class _KeptPreview:
    preview: ListPreview
    seen: tuple[str, int]
    """The status and the token count that the index had at that time."""
    asked_at: float


class ListPreviews:
    """The previews of the conversations that were listed last. `fetch_missing` reads what it lacks or may have
    changed."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._kept: OrderedDict[tuple[str, datetime], _KeptPreview] = OrderedDict()
        self._under_way: dict[tuple[str, datetime], asyncio.Task[None]] = {}
        self._places = asyncio.Semaphore(AT_ONCE)
        self._came = 0
        """How many previews were fetched."""

    def preview_of(self, conversation: ListedConversation) -> ListPreview:
        kept = self._kept.get(_key_of(conversation))
        if kept is None:
            return ListPreview()
        if conversation.status not in _WAITING:  # the calls from the last look are out of date
            return replace(kept.preview, asks=())
        return kept.preview

    async def fetch_missing(self, rows: Iterable[ListedConversation], *, seconds: float) -> AsyncIterator[None]:
        """Fetches what is missing, waiting conversations first. For `seconds`, it yields whenever something came."""
        until = time.monotonic() + seconds
        for conversation in sorted(rows, key=lambda row: row.status not in _WAITING):
            if _key_of(conversation) not in self._under_way and self._is_stale(conversation):
                # One without a worker takes longer than a look to fail. Until then, it is not asked again.
                self._under_way[_key_of(conversation)] = asyncio.create_task(self._fetch_preview(conversation))
        while (remaining := until - time.monotonic()) > 0:
            if not self._under_way:
                await asyncio.sleep(remaining)
                return
            came = self._came
            await asyncio.wait([*self._under_way.values()], timeout=min(remaining, TELL_SECONDS))
            if self._came != came:
                yield

    def stop(self) -> None:
        for asking in [*self._under_way.values()]:
            asking.cancel()

    async def _fetch_preview(self, conversation: ListedConversation) -> None:
        try:
            async with self._places:
                await self._read_preview(conversation)
        finally:
            self._under_way.pop(_key_of(conversation), None)
        self._came += 1

    def _is_stale(self, conversation: ListedConversation) -> bool:
        kept = self._kept.get(_key_of(conversation))
        if kept is None:
            return True
        again = conversation.status in _WAITING and time.monotonic() - kept.asked_at > ASKED_AGAIN_SECONDS
        return again or kept.seen != (conversation.status, conversation.tokens)

    async def _read_preview(self, conversation: ListedConversation) -> None:
        kept = self._kept.get(_key_of(conversation))
        preview = kept.preview if kept else ListPreview(said=await self._first_words(conversation))
        if conversation.status in _WAITING:
            preview = replace(preview, asks=await self._waiting_calls(conversation, preview.asks))
        elif conversation.status == "done" and not preview.outcome:
            preview = replace(preview, outcome=await self._read_outcome(conversation))
        self._kept[_key_of(conversation)] = _KeptPreview(
            preview, (conversation.status, conversation.tokens), time.monotonic()
        )
        self._kept.move_to_end(_key_of(conversation))
        while len(self._kept) > MOST_PREVIEWS_KEPT:
            self._kept.popitem(last=False)

    async def _first_words(self, conversation: ListedConversation) -> str:
        try:
            described = await self._client.temporal.get_workflow_handle(conversation.id).describe()
            return unescape(await described.static_summary() or "")
        except Exception:  # noqa: BLE001 - codecs may raise anything: without the key, people see the id
            return ""

    async def _waiting_calls(
        self, conversation: ListedConversation, before: tuple[AskedCall, ...]
    ) -> tuple[AskedCall, ...]:
        try:
            status = await self._client.conversation(conversation.id).status(children=False)
        except (EverturnError, RPCError):  # there is no worker, or the conversation has just ended
            return before
        return tuple(map(_asked_call, status.waiting))

    async def _read_outcome(self, conversation: ListedConversation) -> str:
        handle = self._client.temporal.get_workflow_handle(conversation.id, result_type=Outcome)
        try:
            outcome: Outcome = await handle.result()
            return outcome.status
        except Exception:  # noqa: BLE001 - no outcome, or an unreadable one: codecs may raise anything
            return ""


def _key_of(conversation: ListedConversation) -> tuple[str, datetime]:
    return conversation.id, conversation.started_at


def _asked_call(call: WaitingCall) -> AskedCall:
    values = (f"{name}={_shown_value(value)}" for name, value in call.arguments.items())
    line = "  ".join(values)
    if call.needs == "answer" and call.why:
        line = call.why
    return AskedCall(call.tool, line[:_LINE_CHARS], call.needs, call.since, call.expires_at)


def _shown_value(value: Any) -> str:
    """The value as JSON, cut if it is long."""
    if isinstance(value, str):
        value = value[:_LINE_CHARS]
    return json.dumps(value, ensure_ascii=False)[:_LINE_CHARS]
