"""More than half of a history's steps are events that only Temporal needs: readers pass over them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

from everturn.client.missing_worker import MissingWorkerWatch
from everturn.history import steps
from everturn.history.event_reader import EventReader
from everturn.payloads import MessageIn, ModelReply, ModelRequest, Start
from everturn.records import Message, Text

AT = datetime(2026, 1, 1, tzinfo=UTC)
ASKED = ModelRequest(agent="clerk", turn=1, delta=(Message.user("Hello"),))
SAID = ModelReply(message=Message(role="assistant", parts=(Text(text="Hi."),)))
TOLD: tuple[steps.Step, ...] = (
    steps.RunStarted(1, AT, Start(agent="clerk", message="Hello")),
    steps.WorkflowTaskCompleted(4, AT, 1.0),
    steps.TurnScheduled(5, AT, ASKED),
    steps.MessageSent(7, AT, MessageIn(text="And?")),
    steps.TurnCompleted(8, AT, ASKED, SAID),
    steps.WorkflowTaskCompleted(11, AT, 2.0),
)
PLAIN = tuple(steps.Step(number, AT) for number in (2, 3, 6, 9, 10))


class Counting(MissingWorkerWatch):
    def __init__(self) -> None:
        self.times = 0

    def note_step(self) -> None:
        self.times += 1


async def test_what_only_temporal_needs_is_heard_and_not_told() -> None:
    whole = sorted((*TOLD, *PLAIN), key=lambda step: step.id)

    async def source() -> AsyncIterator[tuple[str, steps.Step]]:
        for step in whole:
            yield "run", step

    silence = Counting()
    assert [step async for _, step in silence.note_steps(source())] == [*TOLD]
    assert silence.times == len(PLAIN)


def test_events_are_the_same_without_them() -> None:
    def events(*taken: steps.Step) -> list[Any]:
        reader = EventReader()
        return [event for step in taken for event in reader.read_step(step, run_id="run")]

    whole = events(*sorted((*TOLD, *PLAIN), key=lambda step: step.id))
    assert [event.kind for event in whole] == ["message_received", "turn_started", "message_received", "replied"]
    assert whole == events(*TOLD)
