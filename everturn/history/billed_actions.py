"""What Temporal Cloud bills of a history: its actions, as https://docs.temporal.io/cloud/actions counts them.

Not in a history, and so not here: queries, updates that were refused, and heartbeats, which are worked out from how
long each activity ran.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import timedelta
from typing import Final

from temporalio.api.history.v1 import HistoryEvent

from everturn.heartbeats.profiles import QUICK, THRIFTY
from everturn.history import event_types
from everturn.history.resets import RESET

ACTIONS: Final = {
    event_types.WORKFLOW_EXECUTION_STARTED: "starts",
    event_types.TIMER_STARTED: "timers",
    event_types.WORKFLOW_EXECUTION_SIGNALED: "signals",
    event_types.WORKFLOW_EXECUTION_UPDATE_ACCEPTED: "updates",
    event_types.WORKFLOW_EXECUTION_OPTIONS_UPDATED: "options",
    # The child's own start is the second of the two: it is counted in the child's history.
    event_types.START_CHILD_WORKFLOW_EXECUTION_INITIATED: "sub-agents",
    event_types.SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED: "signals",
    event_types.NEXUS_OPERATION_SCHEDULED: "nexus",
}
"""Each of these is one action."""

VERSIONS: Final = "TemporalChangeVersion"
"""An upsert of this attribute alone is free."""


def actions_of(events: Iterable[HistoryEvent]) -> Counter[str]:
    """Actions by kind, without heartbeats. Each try of an activity counts; an activity that no worker began has
    none. Of a run that a reset made, `events` are those after what the reset copied."""
    counts: Counter[str] = Counter()
    marked: set[int] = set()
    """Workflow tasks with markers. All the markers of one workflow task are one action."""
    brought = False
    """A reset puts the signals that came after its point into the new run once more, before that begins to work."""
    for event in events:
        match event.event_type:
            case event_types.WORKFLOW_TASK_FAILED:
                brought = event.workflow_task_failed_event_attributes.cause == RESET
                counts["resets"] += brought
            case event_types.WORKFLOW_TASK_SCHEDULED:
                brought = False
            case event_types.WORKFLOW_EXECUTION_SIGNALED if brought:
                pass
            case event_types.ACTIVITY_TASK_STARTED:
                counts["activities"] += event.activity_task_started_event_attributes.attempt
            case event_types.MARKER_RECORDED:
                task = event.marker_recorded_event_attributes.workflow_task_completed_event_id
                counts["markers"] += task not in marked
                marked.add(task)
            case event_types.UPSERT_WORKFLOW_SEARCH_ATTRIBUTES:
                upserted = event.upsert_workflow_search_attributes_event_attributes.search_attributes.indexed_fields
                counts["search attributes"] += {*upserted} != {VERSIONS}
            case kind if kind in ACTIONS:
                counts[ACTIONS[kind]] += 1
    return +counts


def ordinary_heartbeats(events: Iterable[HistoryEvent]) -> int:
    """How many heartbeats the activities of a history had, calculated from how long their last tries ran. The
    heartbeats that a streamed reply or a tool's progress adds are not counted."""
    timeouts: dict[int, timedelta] = {}
    started: dict[int, HistoryEvent] = {}
    count = 0
    for event in events:
        if event.event_type == event_types.ACTIVITY_TASK_SCHEDULED:
            scheduled = event.activity_task_scheduled_event_attributes
            timeouts[event.event_id] = scheduled.heartbeat_timeout.ToTimedelta()
        elif event.event_type == event_types.ACTIVITY_TASK_STARTED:
            started[event.activity_task_started_event_attributes.scheduled_event_id] = event
        elif (began := started.pop(_scheduled_id(event), None)) and (timeout := timeouts[_scheduled_id(event)]):
            ran = event.event_time.ToDatetime() - began.event_time.ToDatetime()
            profile = THRIFTY if timeout >= THRIFTY.timeout else QUICK
            count += int(ran.total_seconds() // profile.interval_seconds)
    return count


_ENDS: Final = {
    event_types.ACTIVITY_TASK_COMPLETED: "activity_task_completed_event_attributes",
    event_types.ACTIVITY_TASK_FAILED: "activity_task_failed_event_attributes",
    event_types.ACTIVITY_TASK_TIMED_OUT: "activity_task_timed_out_event_attributes",
    event_types.ACTIVITY_TASK_CANCELED: "activity_task_canceled_event_attributes",
}


def _scheduled_id(event: HistoryEvent) -> int:
    """The id of the event that scheduled the activity which ended with this event; 0 if no activity ended."""
    name = _ENDS.get(event.event_type)
    return getattr(event, name).scheduled_event_id if name else 0
