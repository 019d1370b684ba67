"""The demo's accident: SIGKILL for the worker while a tool runs, and another worker."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from temporalio.api.enums.v1 import EventType, PendingActivityState
from temporalio.api.workflow.v1 import PendingActivityInfo

from everturn.cli.render import marked_text

if TYPE_CHECKING:
    from everturn.cli.demo.stage import Stage
    from everturn.cli.terminal import Screen

TOOL = "book"
JOURNAL = "journal.csv"
LINES_BEFORE = 2
"""Kill after the second booking is on the disk, before the worker has reported it: the worst moment."""

GLANCE_SECONDS = 0.02


@dataclass(frozen=True)
class Kill:
    killed_at: datetime
    status: int
    """The killed process's exit status: -9 is SIGKILL."""
    lines_before: int
    new_pid: int


async def kill_in_the_middle(stage: Stage, conversation_id: str, screen: Screen) -> Kill:
    """Waits for the worst moment, kills the worker, starts another, and sees it take over."""
    while len(stage.read_rows(JOURNAL)) < LINES_BEFORE:
        stage.check_worker()
        await asyncio.sleep(GLANCE_SECONDS)
    pid = stage.workers[-1].pid
    killed_at = datetime.now(UTC)
    started = time.monotonic()
    status = stage.kill_worker()
    lines = len(stage.read_rows(JOURNAL))
    new_pid = stage.start_worker()
    screen.print_line()
    screen.print_line(marked_text("trouble", f"SIGKILL: worker {pid} is gone, in the middle of a tool.", indent=2))
    screen.print_line(f"    {lines} lines are in {JOURNAL}; the last one was never reported. Worker {new_pid} starts.")
    screen.print_line(
        "    The next worker finds in a journal what it had in hand, and Temporal runs that again.", style="dim"
    )
    lost = len(await _running_tools(stage, conversation_id))
    while not _taken_over(await _running_tools(stage, conversation_id), lost=lost):
        stage.check_worker()
        await asyncio.sleep(GLANCE_SECONDS)
    seconds = time.monotonic() - started
    screen.print_line(
        marked_text("done", f"Worker {new_pid} has taken over, {seconds:.1f} s after the kill.", indent=2)
    )
    screen.print_line()
    return Kill(killed_at, status, lines, new_pid)


async def _running_tools(stage: Stage, conversation_id: str) -> list[PendingActivityInfo]:
    described = await stage.client.temporal.get_workflow_handle(conversation_id).describe()
    return [
        activity for activity in described.raw_description.pending_activities if activity.activity_type.name == TOOL
    ]


def _taken_over(running: list[PendingActivityInfo], *, lost: int) -> bool:
    # The first call that runs again finds its line in the journal, and is done before anybody sees it run.
    started = PendingActivityState.PENDING_ACTIVITY_STATE_STARTED
    return len(running) < lost or any(activity.attempt > 1 and activity.state == started for activity in running)


async def second_tries(stage: Stage, conversation_id: str) -> list[datetime]:
    """The times at which tool calls were run again, according to Temporal's history."""
    names: dict[int, str] = {}
    tries: list[datetime] = []
    async for event in stage.client.temporal.get_workflow_handle(conversation_id).fetch_history_events():
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            names[event.event_id] = event.activity_task_scheduled_event_attributes.activity_type.name
        elif event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED:
            started = event.activity_task_started_event_attributes
            if started.attempt > 1 and names.get(started.scheduled_event_id) == TOOL:
                tries.append(event.event_time.ToDatetime(tzinfo=UTC))
    return tries
