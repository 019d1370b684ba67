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
from everturn.text.markdown import plain

MOST_PREVIEWS_KEPT: Final = 10_000
"""In memory: those that were read least recently go first."""

ASKED_AGAIN_SECONDS: Final = 10.0
"""The waiting calls may change while the index stays the same: two calls of one reply are decided one by one."""

TELL_SECONDS: Final = 0.25
"""How often those who look are told of new glances."""

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
class Glance:
    said: str = ""
    """The first line of its first message; empty if it has none, or if it is not known yet."""
    asks: tuple[AskedCall, ...] = ()
    outcome: str = ""
    """How it ended, as in Outcome.status; empty if it runs, or if that can't be read."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class _KeptGlance:
    glance: Glance
    seen: tuple[str, int]
    """The status and the token count that the index had at that time."""
    asked_at: float


class Glances:
    """The glances of the conversations that were listed last. `look` fetches what is missing or may have changed."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._kept: OrderedDict[tuple[str, datetime], _KeptGlance] = OrderedDict()
        self._under_way: dict[tuple[str, datetime], asyncio.Task[None]] = {}
        self._places = asyncio.Semaphore(AT_ONCE)
        self._came = 0
        """How many glances were fetched."""

    def of(self, one: ListedConversation) -> Glance:
        kept = self._kept.get(_key(one))
        if kept is None:
            return Glance()
        # If it no longer waits, the calls from the last look are out of date.
        return kept.glance if one.status in _WAITING else replace(kept.glance, asks=())

    async def look(self, rows: Iterable[ListedConversation], *, seconds: float) -> AsyncIterator[None]:
        """Fetches what is missing, waiting conversations first. For `seconds`, it yields whenever something came."""
        until = time.monotonic() + seconds
        for one in sorted(rows, key=lambda one: one.status not in _WAITING):
            if _key(one) not in self._under_way and self._is_stale(one):
                # One without a worker takes longer than a look to fail. Until then, it is not asked again.
                self._under_way[_key(one)] = asyncio.create_task(self._ask(one))
        while (left := until - time.monotonic()) > 0:
            if not self._under_way:
                await asyncio.sleep(left)
                return
            came = self._came
            await asyncio.wait([*self._under_way.values()], timeout=min(left, TELL_SECONDS))
            if self._came != came:
                yield

    def stop(self) -> None:
        for asking in [*self._under_way.values()]:
            asking.cancel()

    async def _ask(self, one: ListedConversation) -> None:
        try:
            async with self._places:
                await self._take(one)
        finally:
            self._under_way.pop(_key(one), None)
        self._came += 1

    def _is_stale(self, one: ListedConversation) -> bool:
        kept = self._kept.get(_key(one))
        if kept is None:
            return True
        again = one.status in _WAITING and time.monotonic() - kept.asked_at > ASKED_AGAIN_SECONDS
        return again or kept.seen != (one.status, one.tokens)

    async def _take(self, one: ListedConversation) -> None:
        kept = self._kept.get(_key(one))
        glance = kept.glance if kept else Glance(said=await self._said(one))
        if one.status in _WAITING:
            glance = replace(glance, asks=await self._asks(one, glance.asks))
        elif one.status == "done" and not glance.outcome:
            glance = replace(glance, outcome=await self._outcome(one))
        self._kept[_key(one)] = _KeptGlance(glance, (one.status, one.tokens), time.monotonic())
        self._kept.move_to_end(_key(one))
        while len(self._kept) > MOST_PREVIEWS_KEPT:
            self._kept.popitem(last=False)

    async def _said(self, one: ListedConversation) -> str:
        try:
            described = await self._client.temporal.get_workflow_handle(one.id).describe()
            return plain(await described.static_summary() or "")
        except Exception:  # noqa: BLE001 - codecs may raise anything: without the key, people see the id
            return ""

    async def _asks(self, one: ListedConversation, before: tuple[AskedCall, ...]) -> tuple[AskedCall, ...]:
        try:
            status = await self._client.conversation(one.id).status(children=False)
        except (EverturnError, RPCError):  # there is no worker, or the conversation has just ended
            return before
        return tuple(map(_asked, status.waiting))

    async def _outcome(self, one: ListedConversation) -> str:
        handle = self._client.temporal.get_workflow_handle(one.id, result_type=Outcome)
        try:
            outcome: Outcome = await handle.result()
            return outcome.status
        except Exception:  # noqa: BLE001 - no outcome, or an unreadable one: codecs may raise anything
            return ""


def _key(one: ListedConversation) -> tuple[str, datetime]:
    return one.id, one.started_at


def _asked(call: WaitingCall) -> AskedCall:
    values = (f"{name}={_shown(value)}" for name, value in call.arguments.items())
    line = call.why if call.needs == "answer" and call.why else "  ".join(values)
    return AskedCall(call.tool, line[:_LINE_CHARS], call.needs, call.since, call.expires_at)


def _shown(value: Any) -> str:
    """The value as JSON, cut if it is long."""
    return json.dumps(value[:_LINE_CHARS] if isinstance(value, str) else value, ensure_ascii=False)[:_LINE_CHARS]
