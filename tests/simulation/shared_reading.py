"""Everybody in a world reads the same histories from their beginning: checks, people, watchers, cold workers. Each
event is read once, by everturn's own reader, and whoever comes next has the step that it was.

So it is with the events that are made of steps. What a reader leaves out, as seen before, each decides for itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from temporalio.api.history.v1 import HistoryEvent

from everturn.client import conversation
from everturn.events import Event
from everturn.history.event_reader import EventReader
from everturn.history.reader import HistoryReader
from everturn.history.steps import RunClosed, Step
from tests.support import agreement

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
    _forget()
    try:
        with ExitStack() as stack:
            stack.enter_context(patch.object(HistoryReader, "read_event", _read))
            for module in (conversation, agreement):
                stack.enter_context(patch.object(module, "EventReader", SharedEventReader))
            yield
    finally:
        _forget()


def _forget() -> None:
    _by_first_event.clear()
    _by_first_step.clear()


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


@dataclass
class _Told:
    """What was told of steps so far, and by whom."""

    reader: EventReader
    steps: list[Step] = field(default_factory=list)
    events: list[list[Event]] = field(default_factory=list)

    def next(self, step: Step) -> None:
        self.events.append(self.reader._events_of_step(step))
        self.steps.append(step)
        if isinstance(step, RunClosed):
            self.reader._alike = step.alike


_by_first_step: dict[tuple[int, bool], _Told] = {}
"""By where its readers begin, and whether they know the run before."""


class SharedEventReader(EventReader):
    """For who wants nothing but the events: `by_history` stays as it was at first."""

    def __init__(self, since: str | None = None) -> None:
        super().__init__(since)
        self._resumes = self._follows
        self._known: _Told | None = None
        self._place = 0

    def _events_of_step(self, step: Step) -> list[Event]:
        known = self._known
        if known is None or (self._place < len(known.steps) and not _are_same(known.steps[self._place], step)):
            known = self._known = self._begun(step, known.steps[: self._place] if known else [])
        if self._place == len(known.steps):
            known.next(step)
        self._place += 1
        return known.events[self._place - 1]

    def _begun(self, step: Step, before: list[Step]) -> _Told:
        begins = id(before[0] if before else step), self._resumes
        known = _by_first_step.get(begins)
        if known and not before and known.steps[0] is step:
            return known
        known = _by_first_step[begins] = _Told(EventReader())
        known.reader._follows = self._resumes
        for one in before:
            known.next(one)
        return known


def _are_same(one: Step, other: Step) -> bool:
    """Whoever follows a run makes the last step of it anew, with what came after it."""
    return one is other or (isinstance(other, RunClosed) and one == other)
