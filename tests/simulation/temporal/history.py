"""Event histories, as the protobufs that Temporal's own readers take."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.enums.v1 import EventType
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent

from tests.simulation.temporal.clock import wrong_by

_FIELDS = HistoryEvent.DESCRIPTOR.fields_by_name

_KINDS: dict[str, tuple[int, str, type[Any]]] = {
    name.removesuffix("_event_attributes"): (
        EventType.Value(f"EVENT_TYPE_{name.removesuffix('_event_attributes').upper()}"),
        name,
        field.message_type._concrete_class,
    )
    for name, field in _FIELDS.items()
    if name.endswith("_event_attributes")
    and f"EVENT_TYPE_{name.removesuffix('_event_attributes').upper()}" in EventType.keys()  # noqa: SIM118 - it is no dict
}
"""By the names that are written here: `workflow_task_scheduled` and so on."""

NAMES = {number: name for name, (number, _, _) in _KINDS.items()}

TASKS = frozenset(
    {"workflow_task_scheduled", "workflow_task_started", "workflow_task_completed", "workflow_task_failed"}
    | {"workflow_task_timed_out"}
)

CLOSED = frozenset(
    f"workflow_execution_{how}"
    for how in ("completed", "failed", "canceled", "terminated", "continued_as_new", "timed_out")
)


def kind(event: HistoryEvent) -> str:
    return NAMES[event.event_type]


def attributes(event: HistoryEvent) -> Any:
    return getattr(event, _KINDS[NAMES[event.event_type]][1])


def now() -> Timestamp:
    """By the server's clock."""
    stamp = Timestamp()
    stamp.FromMicroseconds(round((time.time() - wrong_by.get()) * 1e6))
    return stamp


class History:
    """One run's events, and their size in bytes."""

    def __init__(self, events: Iterable[HistoryEvent] = ()) -> None:
        self.events = [*events]
        self.bytes = sum(event.ByteSize() for event in self.events)
        self.at = self.events[-1].event_time.ToMicroseconds() if self.events else 0
        """The last event's time, in microseconds: none is before the one before it."""
        self.started_at = self.at
        """The last workflow task's start: each is later, as it is between two workflow tasks of a real server."""

    def __len__(self) -> int:
        return len(self.events)

    def beyond(self) -> History:
        """The same events, for more that may never be written."""
        made = History()
        made.events, made.bytes = list(self.events), self.bytes
        made.at, made.started_at = self.at, self.started_at
        return made

    def _stamp(self, name: str) -> Timestamp:
        at = max(now().ToMicroseconds(), self.at)
        if name == "workflow_task_started":
            at = self.started_at = max(at, self.started_at + 1)
        self.at, stamp = at, Timestamp()
        stamp.FromMicroseconds(at)
        return stamp

    def add(self, name: str, *, beside: dict[str, Any] | None = None, **values: Any) -> HistoryEvent:
        number, field, made = _KINDS[name]
        stamp = self._stamp(name)
        event = HistoryEvent(event_id=len(self.events) + 1, event_time=stamp, event_type=number, **(beside or {}))  # type: ignore[arg-type]
        getattr(event, field).MergeFrom(made(**values))
        getattr(event, field).SetInParent()
        self.events.append(event)
        self.bytes += event.ByteSize()
        return event


def failure(message: str, *, cause: Failure | None = None, **info: Any) -> Failure:
    return Failure(message=message, cause=cause, **info)
