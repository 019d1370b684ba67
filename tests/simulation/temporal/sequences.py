"""How a history is cut into workflow tasks: what each of them brought to the conversation, and what it answered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from temporalio.api.history.v1 import HistoryEvent

from tests.simulation.temporal.history import CLOSED, TASKS, kind


@dataclass(frozen=True)
class TaskEvents:
    """The events of one workflow task, up to its start."""

    events: tuple[HistoryEvent, ...]
    """What the task before answered, then what came since."""
    started: HistoryEvent
    answer: tuple[HistoryEvent, ...]
    """What this one answered: empty for the last one, which is still to be done."""
    last: bool


def tasks(history: Sequence[HistoryEvent], *, after: int = 0) -> Iterator[TaskEvents]:
    """Those that were completed, and the last one if it is under way; `after`: the start of the last one that is known.

    Tasks that failed or timed out are passed over, with what they brought going to the next. So are those that brought
    nothing and answered nothing."""
    begun = after
    interesting = False
    for place in range(after, len(history)):
        event = history[place]
        name = kind(event)
        interesting |= name not in TASKS
        if name != "workflow_task_started":
            continue
        last = place + 1 == len(history)
        following = "" if last else kind(history[place + 1])
        if not last and following != "workflow_task_completed":
            continue
        beyond = kind(history[place + 2]) if place + 2 < len(history) else ""
        if following and beyond == "workflow_task_scheduled" and not interesting:
            continue
        yield TaskEvents(tuple(history[begun : place + 1]), event, tuple(_answer(history, place + 1)), last)
        begun, interesting = place + 1, False


def _answer(history: Sequence[HistoryEvent], start: int) -> Iterator[HistoryEvent]:
    """The task's end and the events that its commands made."""
    for event in history[start:]:
        name = kind(event)
        if (name == "workflow_task_completed" and event.event_id == start + 1) or is_command(event):
            yield event
        else:
            return


COMMANDS = frozenset(
    {
        *("activity_task_scheduled", "activity_task_cancel_requested", "timer_started", "timer_canceled"),
        *("marker_recorded", "upsert_workflow_search_attributes", "workflow_properties_modified"),
        *("start_child_workflow_execution_initiated", "signal_external_workflow_execution_initiated"),
        "request_cancel_external_workflow_execution_initiated",
        *("workflow_execution_update_accepted", "workflow_execution_update_completed"),
    }
    | (CLOSED - {"workflow_execution_terminated", "workflow_execution_timed_out"})
)
"""The events that a workflow's own commands make."""


def is_command(event: HistoryEvent) -> bool:
    return kind(event) in COMMANDS
