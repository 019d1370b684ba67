"""An operator's reset: a new run with the first part of another's history; what people sent since is applied again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from temporalio.api.enums.v1 import WorkflowTaskFailedCause
from temporalio.api.history.v1 import HistoryEvent

from tests.simulation.temporal.activities import Activity
from tests.simulation.temporal.history import History, attributes, kind
from tests.simulation.temporal.runs import Run, Update
from tests.simulation.temporal.server import Server
from tests.simulation.temporal.workflow_tasks import fire

RESET = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_RESET_WORKFLOW


def reset(server: Server, base: Run, finished: int, reason: str) -> Run:
    """Goes back to before the end of a workflow task, which is event `finished`."""
    undone = base.history.events[finished - 1 :]
    done = attributes(undone[0])
    shared = {"parent": base.parent, "base": (base.id, finished - 1)}
    run = server.new_run(base.workflow_id, first_run_id=base.first_run_id, **shared)
    run.attributes.CopyFrom(base.started.search_attributes)
    run.memo.CopyFrom(base.memo)
    run.history = History(base.history.events[: finished - 1])
    run.says_flags = any(kind(event) == "workflow_task_completed" for event in run.history.events)
    later = [*_later_runs(server, base)]
    for one in (base, *later):  # the run that goes on, which may be a later one
        if not one.closed:
            server.terminate(one, reason)
    server.runs[run.id], server.latest[run.workflow_id] = run, run.id
    server.count("resets")
    run.write(
        "workflow_task_failed",
        scheduled_event_id=done.scheduled_event_id,
        started_event_id=done.started_event_id,
        cause=RESET,
        base_run_id=base.id,
        new_run_id=run.id,
    )
    _take_up(server, run)
    for event in (*undone, *(event for one in later for event in one.history.events)):
        _apply_again(run, event)
    server.need_task(run)
    return run


def _later_runs(server: Server, base: Run) -> Iterator[Run]:
    """Those that it continued as: it was over before the reset arrived."""
    one = base
    while one.next_run_id and one.next_run_id in server.runs:
        one = server.runs[one.next_run_id]
        yield one


def points(history: Sequence[HistoryEvent]) -> Iterator[int]:
    """Where a run can be reset to: after a child was begun, the simulation leaves it alone."""
    for event in history:
        if kind(event) == "start_child_workflow_execution_initiated":
            return
        if kind(event) == "workflow_task_completed":
            yield event.event_id


def _take_up(server: Server, run: Run) -> None:
    """What was under way goes on: activities from their beginning, timers for as long as they still have."""
    scheduled: dict[int, HistoryEvent] = {}
    timers: dict[str, HistoryEvent] = {}
    for event in run.history.events:
        given = attributes(event)
        match kind(event):
            case "activity_task_scheduled":
                scheduled[event.event_id] = event
            case name if name.startswith("activity_task_") and name != "activity_task_started":
                scheduled.pop(given.scheduled_event_id, None)
            case "upsert_workflow_search_attributes":
                run.attributes.MergeFrom(given.search_attributes)
            case "timer_started":
                timers[given.timer_id] = event
            case "timer_fired" | "timer_canceled":
                timers.pop(given.timer_id, None)
            case _:
                pass
    for event in scheduled.values():
        run.activities[event.event_id] = activity = Activity(server, run, event)
        activity.begin(eager=None)
    for timer_id, event in timers.items():
        seconds = attributes(event).start_to_fire_timeout.ToTimedelta().total_seconds()
        gone = run.history.events[-1].event_time.ToMicroseconds() - event.event_time.ToMicroseconds()
        clock = server.later(fire, server, run, timer_id, seconds=max(0.0, seconds - gone / 1e6))
        run.timers[timer_id] = event.event_id, clock


def _apply_again(run: Run, event: HistoryEvent) -> None:
    given = attributes(event)
    match kind(event):
        case "workflow_execution_signaled":
            run.write("workflow_execution_signaled", signal_name=given.signal_name, input=given.input, identity="again")
        case "workflow_execution_update_accepted" if given.accepted_request.meta.update_id:
            request = given.accepted_request
            run.write("workflow_execution_update_admitted", request=request)
            run.updates[request.meta.update_id] = Update(
                request, asyncio.get_running_loop().create_future(), admitted=True
            )
        case _:
            pass
