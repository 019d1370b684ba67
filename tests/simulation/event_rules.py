"""What has to be true of the events of a conversation that is over: they tell what its transcript and its history
have, each once, and whoever comes back anywhere is told all the rest."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from everturn import names
from everturn.events import (
    AnswerRequested,
    ApprovalRequested,
    Decided,
    Event,
    MessageReceived,
    Replied,
    Switched,
    ToolCalled,
    ToolFinished,
)
from everturn.history import steps
from everturn.history.event_reader import EventReader
from tests.simulation.rules import Evidence

SWITCHES = {names.PAUSE, names.RESUME, names.CANCEL_TURN, names.CLOSE, "reset"}

PLACES = 6
"""At which somebody comes back."""


def messages_are_told_once(one: Evidence) -> Iterator[str]:
    told = Counter(event.message.text for event in one.events if isinstance(event, MessageReceived))
    for text in one.told.said.values():
        if told[text] > 1:
            yield f"{text!r} is {told[text]} times among the events"


def results_are_told_once(one: Evidence) -> Iterator[str]:
    """Each call of the transcript that is told has one result among the events, of its own turn."""
    called = {event.call.call_id: event.turn for event in one.events if isinstance(event, ToolCalled)}
    finished = [event for event in one.events if isinstance(event, ToolFinished)]
    times = Counter(event.result.call_id for event in finished)
    for event in finished:
        call_id = event.result.call_id
        late = event.turn - called.get(call_id, event.turn)
        if late not in (0, 1):  # by one, if a summary and a new run come between: it is the run's turn that is told
            yield f"{call_id} was called in turn {called[call_id]}, and its result is told as one of turn {event.turn}"
    results = {result.call_id for message in one.transcript for result in message.tool_results}
    for call_id in results & called.keys():
        if times[call_id] != 1:
            yield f"{call_id} has a result in the transcript, and {times[call_id]} among the events"


def commands_are_told_by_name(one: Evidence) -> Iterator[str]:
    for event in one.events:
        if isinstance(event, Switched) and event.name not in SWITCHES:
            yield f"the events tell of a command {event.name!r}"
    told = Counter((event.verdict, event.call_id) for event in one.events if isinstance(event, Decided))
    for _, taken in () if any(run.base for run, _ in one.runs) else one.life:
        for step in taken:
            if isinstance(step, steps.CommandSent) and step.accepted and step.name in names.DECISIONS:
                decided = step.name, str(step.payload.get("call_id", ""))
                if not told[decided]:
                    yield f"{decided} was taken, and is not among the events"


def who_comes_back_is_told_the_rest(one: Evidence) -> Iterator[str]:
    """From any cursor on, the events are those that follow it in the whole list."""
    chance = random.Random(one.id)
    places = {place for place, (event, after) in enumerate(pairwise(one.events)) if _is_odd(event, after)}
    places = {*_some(chance, sorted(places)), *_some(chance, range(len(one.events)))}
    runs = [run.id for run, _ in one.life]
    for place in sorted(places):
        cursor = one.events[place].cursor
        reader, found = EventReader(cursor), list[str]()
        for run, taken in one.life[runs.index(reader.run_id) :]:
            for step in taken:
                found += [event.cursor for event in reader.read(step, run_id=run.id)]
        if found != (wanted := [event.cursor for event in one.events[place + 1 :]]):
            yield f"since {cursor}, events are {_kinds(one, found)}, and not {_kinds(one, wanted)}"
            return


def _is_odd(event: Event, after: Event) -> bool:
    """Between the events of one step, at the begin of a run, and where somebody is asked."""
    return event.cursor.split(".")[0] == after.cursor.split(".")[0] or (
        event.cursor.split("/")[0] != after.cursor.split("/")[0]
        or isinstance(event, Replied | ApprovalRequested | AnswerRequested)
    )


def _some(chance: random.Random, places: Sequence[int]) -> Sequence[int]:
    return chance.sample(places, min(PLACES, len(places)))


def _kinds(one: Evidence, cursors: Sequence[str]) -> list[str]:
    kinds = {event.cursor: event.kind for event in one.events}
    return [kinds.get(cursor, f"something at {cursor}") for cursor in cursors]


EVENT_RULES = (
    messages_are_told_once,
    results_are_told_once,
    commands_are_told_by_name,
    who_comes_back_is_told_the_rest,
)
