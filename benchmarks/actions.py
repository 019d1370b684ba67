"""What a conversation costs on Temporal Cloud, in actions, counted from its event histories.

    python -m benchmarks.actions order-81

Temporal's own list says what an action is: https://docs.temporal.io/cloud/actions. Not in a history, and so not here:
heartbeats, queries and updates that were refused. `python -m benchmarks actions` measures heartbeats at a server.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Iterable

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client
from temporalio.service import RPCError

from benchmarks.histories import runs_of
from everturn.settings import connect_options

ACTIONS = {
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED: ("starts", 1),
    EventType.EVENT_TYPE_TIMER_STARTED: ("timers", 1),
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED: ("signals", 1),
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED: ("updates", 1),
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_OPTIONS_UPDATED: ("options", 1),
    # The child's own start is the second of the two: it is counted in the child's history.
    EventType.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED: ("sub-agents", 1),
    EventType.EVENT_TYPE_SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED: ("signals", 1),
    EventType.EVENT_TYPE_NEXUS_OPERATION_SCHEDULED: ("nexus", 1),
}
VERSIONS = "TemporalChangeVersion"
"""An upsert of this alone is free."""


def actions_of(events: Iterable[HistoryEvent]) -> Counter[str]:
    """By kind. Each try of an activity counts: one that no worker began has none."""
    found: Counter[str] = Counter()
    marked: set[int] = set()
    """Workflow tasks with a marker: all of one are one action."""
    for event in events:
        match event.event_type:
            case EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED:
                found["activities"] += event.activity_task_started_event_attributes.attempt
            case EventType.EVENT_TYPE_MARKER_RECORDED:
                task = event.marker_recorded_event_attributes.workflow_task_completed_event_id
                found["markers"] += task not in marked
                marked.add(task)
            case EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES:
                upserted = event.upsert_workflow_search_attributes_event_attributes.search_attributes.indexed_fields
                found["search attributes"] += {*upserted} != {VERSIONS}
            case kind if kind in ACTIONS:
                name, count = ACTIONS[kind]
                found[name] += count
    return +found


async def actions(client: Client, conversation_id: str) -> Counter[str]:
    """Over all runs, without sub-agents' own. Raises RPCError."""
    return actions_of(event for run in await runs_of(client, conversation_id) for event in run.history.events)


async def main(conversation_ids: list[str]) -> int:
    client = await Client.connect(**connect_options())
    for conversation_id in conversation_ids:
        try:
            found = await actions(client, conversation_id)
        except RPCError as error:
            print(f"{conversation_id}: {error.message}", file=sys.stderr)
            return 1
        kinds = ", ".join(f"{count} {kind}" for kind, count in found.most_common())
        print(f"{conversation_id}: {found.total()} actions ({kinds}), and heartbeats")
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
