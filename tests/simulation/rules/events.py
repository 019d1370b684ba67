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
    Done,
    Event,
    MessageReceived,
    Replied,
    Switched,
    ToolCalled,
    ToolFinished,
)
from everturn.history import steps
from everturn.records import Message, ToolResult
from tests.simulation.people.moves import LARGER
from tests.simulation.rules.conversations import Evidence
from tests.simulation.shared_reading import SharedEventReader

SWITCHES = {names.SET_POLICY, names.PAUSE, names.RESUME, names.CANCEL_TURN, names.CLOSE, "reset"}

PLACES = 6
"""At which somebody comes back."""


def messages_are_told_once(one: Evidence) -> Iterator[str]:
    told = Counter(event.message.text for event in one.events if isinstance(event, MessageReceived))
    for text in one.told.said.values():
        if told[text] > 1:
            yield f"{text!r} is {told[text]} times among the events"
    for event in one.events:
        if isinstance(event, MessageReceived) and _is_refused(event.message):
            yield "the events tell a message that was refused"


def _is_refused(message: Message) -> bool:
    """As in moves.REFUSED."""
    return message.text == LARGER or any(isinstance(part, ToolResult) for part in message.parts)


def results_are_told_once(one: Evidence) -> Iterator[str]:
    """Each call of the transcript that is told has one result among the events, of its own turn."""
    called = {event.call.call_id: event.turn for event in one.events if isinstance(event, ToolCalled)}
    finished = [event for event in one.events if isinstance(event, ToolFinished)]
    times = Counter(event.result.call_id for event in finished)
    for event in finished:
        call_id = event.result.call_id
        if event.turn != called.get(call_id, event.turn):
            yield f"{call_id} was called in turn {called[call_id]}, and its result is told as one of turn {event.turn}"
    results = {result.call_id for message in one.transcript for result in message.tool_results}
    for call_id in results & called.keys():
        if times[call_id] != 1:
            yield f"{call_id} has a result in the transcript, and {times[call_id]} among the events"


def a_pause_is_told_once(one: Evidence) -> Iterator[str]:
    paused = False
    for event in one.events:
        if isinstance(event, Switched | Done):
            if paused and event.kind == "switched" and event.name == names.PAUSE:
                yield "the events tell of a pause while it is paused"
                return
            paused = isinstance(event, Switched) and event.name == names.PAUSE


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


class Returning:
    """Readers who come back with a cursor of this life. They begin with its run, all alike: what a step is told as, is
    worked out once for all who begin there, and each leaves out what it has seen."""

    def __init__(self, life: Sequence[tuple[str, Sequence[steps.Step]]]) -> None:
        self._life = [run_id for run_id, _ in life]
        self._steps = dict(life)

    def told(self, cursor: str) -> list[Event]:
        """All that whoever has this cursor is told."""
        reader = SharedEventReader(cursor)
        runs = self._life[self._life.index(reader.run_id) :]
        return [
            event for run_id in runs for step in self._steps[run_id] for event in reader.read_step(step, run_id=run_id)
        ]


def who_comes_back_is_told_the_rest(one: Evidence) -> Iterator[str]:
    """From any cursor on, the events are those that follow it in the whole list."""
    chance = random.Random(one.id)
    places = {place for place, (event, after) in enumerate(pairwise(one.events)) if _is_odd(event, after)}
    places = {*_some(chance, sorted(places)), *_some(chance, range(len(one.events)))}
    returning = Returning([(run.id, taken) for run, taken in one.life])
    for place in sorted(places):
        cursor = one.events[place].cursor
        found = [event.cursor for event in returning.told(cursor)]
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
    a_pause_is_told_once,
    results_are_told_once,
    commands_are_told_by_name,
    who_comes_back_is_told_the_rest,
)
