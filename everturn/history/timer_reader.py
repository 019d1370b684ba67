"""Reads the timers of calls from a history: a reminder, an expiry, and a Nexus operation that nobody begins.

Temporal keeps nothing of a timer but its length and its summary, which is also what people read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from temporalio.api.history.v1 import HistoryEvent
from temporalio.converter import DataConverter

from everturn import names
from everturn.history.activity_reader import ActivityReader
from everturn.history.steps import Expired, ReminderFired, Step

KINDS = (names.REMINDER, names.EXPIRY, names.NOT_BEGUN)


@dataclass(frozen=True)
class _Timer:
    kind: str
    call_id: str
    length: timedelta


class TimerReader:
    def __init__(self, converter: DataConverter, activities: ActivityReader) -> None:
        self._converter = converter
        self._activities = activities
        self._expected: dict[str, tuple[str, str]] = {}
        """What a timer of these calls is about, by its whole summary: that of another timer, which a user's interceptor
        started, may begin with the same words."""
        self._running: dict[int, _Timer] = {}

    def expect_calls(self, call_ids: Iterable[str]) -> None:
        """The calls of a reply: each may get timers."""
        self._expected |= {f"{kind}{call_id}": (kind, call_id) for call_id in call_ids for kind in KINDS}

    async def note_started(self, event: HistoryEvent) -> None:
        if not event.user_metadata.HasField("summary"):
            return
        (summary,) = await self._converter.decode([event.user_metadata.summary])
        if about := self._expected.get(str(summary)):
            length = event.timer_started_event_attributes.start_to_fire_timeout.ToTimedelta()
            self._running[event.event_id] = _Timer(*about, length)

    def read_fired(self, event: HistoryEvent, time: datetime) -> Step | None:
        timer = self._running.pop(event.timer_fired_event_attributes.started_event_id, None)
        match timer:
            case _Timer(kind=names.REMINDER):
                return ReminderFired(event.event_id, time, timer.call_id)
            case _Timer(kind=names.EXPIRY):
                return Expired(event.event_id, time, timer.call_id)
            case _Timer():
                return self._activities.not_begun(event.event_id, time, timer.call_id, timer.length)
            case None:
                return None
