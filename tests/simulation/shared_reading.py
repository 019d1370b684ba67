"""Everybody in a world reads the same histories from their beginning: checks, people, watchers, cold workers. Each
event is read once, by everturn's own reader, and whoever comes next has the step that it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from temporalio.api.history.v1 import HistoryEvent

from everturn.history.reader import HistoryReader
from everturn.history.steps import Step

_read_really = HistoryReader.read_event


@dataclass
class _Read:
    """What was read of a run so far, and by whom."""

    reader: HistoryReader
    events: list[HistoryEvent] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)

    async def next(self, event: HistoryEvent) -> None:
        self.steps.append(await _read_really(self.reader, event))
        self.events.append(event)


_by_first_event: dict[int, _Read] = {}
"""By where a run's own part of its history begins: a run that was made by a reset shares its beginning with another."""


@contextmanager
def each_event_once() -> Iterator[None]:
    _by_first_event.clear()
    try:
        with patch.object(HistoryReader, "read_event", _read):
            yield
    finally:
        _by_first_event.clear()


async def _read(reader: Any, event: HistoryEvent) -> Step:
    known, place = vars(reader).get("_known"), vars(reader).get("_place", 0)
    if known is None or (place < len(known.events) and known.events[place] is not event):
        known = reader._known = await _begun(reader, event, known.events[:place] if known else [])
    if place == len(known.events):
        await known.next(event)
    reader._place = place + 1
    step: Step = known.steps[place]
    return step


async def _begun(reader: Any, event: HistoryEvent, before: list[HistoryEvent]) -> _Read:
    known = _by_first_event.get(id(event))
    if known and len(known.events) > len(before) and known.events[len(before)] is event:
        return known
    known = _by_first_event[id(event)] = _Read(HistoryReader(reader._converter))
    for one in before:
        await known.next(one)
    return known
