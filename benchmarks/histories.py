"""What a conversation has written: its event histories, over all of its runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHistory


@dataclass(frozen=True)
class Run:
    run_id: str
    history: WorkflowHistory
    size: int
    """In bytes, as the server counts them."""


@dataclass(frozen=True)
class Mark:
    """How far a conversation had come, over all runs, when a turn was done."""

    turns: int
    events: int
    size: int


async def runs_of(client: Client, conversation_id: str) -> list[Run]:
    """All runs, in order, by following each one's continue-as-new event."""
    first = await client.get_workflow_handle(conversation_id).describe()
    run_id: str | None = first.raw_description.workflow_execution_info.first_run_id
    runs = []
    while run_id:
        handle = client.get_workflow_handle(conversation_id, run_id=run_id)
        history = await handle.fetch_history()
        described = await handle.describe()
        runs.append(Run(run_id, history, described.raw_description.workflow_execution_info.history_size_bytes))
        last = history.events[-1].workflow_execution_continued_as_new_event_attributes
        run_id = last.new_execution_run_id or None
    return runs


def marks_of(runs: list[Run]) -> list[Mark]:
    """One for each turn with a tool call: it is done when its second activity is."""
    marks: list[Mark] = []
    events = size = activities = 0
    for run in runs:
        for event in run.history.events:
            events, size = events + 1, size + event.ByteSize()
            if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
                activities += 1
                if activities % 2 == 0:
                    marks.append(Mark(activities // 2, events, size))
    return marks


def largest_payload(runs: list[Run]) -> int:
    """In bytes."""
    return max(len(payload.data) for run in runs for event in run.history.events for payload in _payloads(event))


def attempts(runs: list[Run], activity: str) -> list[int]:
    """Of each completed activity of this type, in order: which attempt it was that completed."""
    found = []
    for run in runs:
        ours: set[int] = set()
        attempt: dict[int, int] = {}
        for event in run.history.events:
            match event.event_type:
                case EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
                    if event.activity_task_scheduled_event_attributes.activity_type.name == activity:
                        ours.add(event.event_id)
                case EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED:
                    started = event.activity_task_started_event_attributes
                    attempt[started.scheduled_event_id] = started.attempt
                case EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
                    scheduled = event.activity_task_completed_event_attributes.scheduled_event_id
                    if scheduled in ours:
                        found.append(attempt[scheduled])
    return found


def _payloads(message: Message) -> Iterator[Payload]:
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        for one in _each(value):
            if isinstance(one, Payload):
                yield one
            elif isinstance(one, Message):
                yield from _payloads(one)


def _each(value: Any) -> list[Any]:
    if isinstance(value, Message):
        return [value]
    return list(value.values()) if hasattr(value, "values") else list(value)
