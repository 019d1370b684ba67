"""A completed workflow task, as the server takes it: commands become events, and what they ask for begins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.protobuf.duration_pb2 import Duration
from temporalio.api.common.v1 import Payloads, WorkflowExecution
from temporalio.api.enums.v1 import StartChildWorkflowExecutionFailedCause, WorkflowTaskFailedCause
from temporalio.api.failure.v1 import Failure
from temporalio.api.sdk.v1 import WorkflowTaskCompletedMetadata
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.update.v1 import Outcome

from tests.simulation.temporal import limits
from tests.simulation.temporal.activities import Activity
from tests.simulation.temporal.dispatch import QUEUE
from tests.simulation.temporal.history import CLOSED
from tests.simulation.temporal.runs import Run, Task, Update
from tests.simulation.temporal.sdk_commands import Command
from tests.simulation.temporal.server import Server

if TYPE_CHECKING:
    from tests.simulation.machines.workers import SimulatedWorker

UNHANDLED = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND
CORE_FLAGS = (4, 3, 1, 2)
"""Of the SDK's core, as every one of our histories has them."""


def complete(
    server: Server,
    run: Run,
    task: Task,
    worker: SimulatedWorker,
    commands: list[Command],
    rejected: list[tuple[str, Failure]],
    *,
    goes_on: bool = False,
) -> bool:
    """Whether the server took it, and wrote its events: not if the task was given to somebody else meanwhile, or if
    something came that the conversation has to see before it ends. `goes_on`: the worker asks for another task at once,
    since local activities run."""
    if run.task is not task or run.closed:
        return False
    for update_id, why in rejected:
        _answer(run.updates[update_id], Outcome(failure=why))
    if any(command.event in CLOSED for command in commands) and run.buffered:
        server.count("ends that came too early")
        server.task_failed(run, task, UNHANDLED)
        return False
    if task.speculative and not commands and not goes_on:
        server.count("speculative tasks without a trace")
        server.task_done(run, task, worker=worker)
        return False
    if task.speculative:
        server.make_normal(run, task)
    before = len(run.history)
    flags = {} if run.says_flags else {"core_used_flags": CORE_FLAGS}
    run.says_flags = True
    done = run.write(
        "workflow_task_completed",
        scheduled_event_id=task.scheduled_id,
        started_event_id=task.started_id,
        identity=worker.name,
        sdk_metadata=WorkflowTaskCompletedMetadata(sdk_name="temporal-python", sdk_version="1.35.0", **flags),
    ).event_id
    eager = 3
    for command in commands:
        server.count("commands")
        eager -= _carry_out(server, run, command, done, worker, task, eager=eager > 0)
    limits.check_events(server, run, run.history.events[before:])
    server.task_done(run, task, worker=worker)
    if goes_on:
        server.count("tasks held by local activities")
        server.need_task(run)
    return True


def _carry_out(
    server: Server, run: Run, command: Command, done: int, worker: SimulatedWorker, task: Task, *, eager: bool
) -> bool:
    """Whether it has used up a slot of those that go to the worker itself."""
    lang = command.lang
    beside: dict[str, Any] = {"event_group_markers": lang.event_group_markers}
    if lang.HasField("user_metadata"):
        beside["user_metadata"] = lang.user_metadata
    by = {"workflow_task_completed_event_id": done}
    match command.event:
        case "activity_task_scheduled":
            return _schedule(server, run, lang.schedule_activity, beside, by, worker if eager else None)
        case "activity_task_cancel_requested":
            scheduled = int(command.key)
            run.write(command.event, beside=beside, scheduled_event_id=scheduled, **by)
            if activity := run.activities.get(scheduled):
                server.later(_cancel, run, activity, seconds=0.0)
        case "timer_started":
            asked = lang.start_timer
            started = run.write(
                command.event,
                beside=beside,
                timer_id=command.key,
                start_to_fire_timeout=asked.start_to_fire_timeout,
                **by,
            ).event_id
            seconds = asked.start_to_fire_timeout.ToTimedelta().total_seconds()
            run.timers[command.key] = started, server.later(fire, server, run, command.key, seconds=seconds)
        case "timer_canceled":
            if command.key in run.timers:
                started, clock = run.timers.pop(command.key)
                clock.cancel()
                # One that has fired meanwhile is forgotten: the workflow has not seen it.
                run.buffered = [one for one in run.buffered if one[0] != f"timer_fired {command.key}"]
                run.write(command.event, beside=beside, timer_id=command.key, started_event_id=started, **by)
        case "marker_recorded":
            name = command.key.partition(" ")[0]
            details = {key: Payloads(payloads=value) for key, value in command.marker.items()}
            run.write(command.event, beside=beside, marker_name=name, details=details, failure=command.failure, **by)
        case "upsert_workflow_search_attributes":
            attributes = lang.upsert_workflow_search_attributes.search_attributes
            run.attributes.MergeFrom(attributes)
            run.write(command.event, beside=beside, search_attributes=attributes, **by)
        case "workflow_execution_update_accepted":
            update = run.updates[command.key]
            update.accepted_id = run.write(
                command.event,
                beside=beside,
                protocol_instance_id=update.id,
                accepted_request_message_id=f"{update.id}/request",
                accepted_request_sequencing_event_id=task.scheduled_id,
                accepted_request=None if update.admitted else update.request,  # a reset has written it before
            ).event_id
        case "workflow_execution_update_completed":
            update = run.updates[command.key]
            result = Outcome(success=Payloads(payloads=[lang.update_response.completed]))
            run.write(
                command.event,
                beside=beside,
                meta=update.request.meta,
                accepted_event_id=update.accepted_id,
                outcome=result,
            )
            _answer(update, result)
        case "start_child_workflow_execution_initiated":
            _start_child(server, run, lang.start_child_workflow_execution, beside, by)
        case "request_cancel_external_workflow_execution_initiated":
            _cancel_child(server, run, command.key, beside, by)
        case "signal_external_workflow_execution_initiated":
            _signal(server, run, lang.signal_external_workflow_execution, beside, by)
        case closing:
            _close(server, run, closing, lang, by)
    return False


def _schedule(
    server: Server, run: Run, asked: Any, beside: dict[str, Any], by: dict[str, int], worker: SimulatedWorker | None
) -> bool:
    event = run.write(
        "activity_task_scheduled",
        beside=beside,
        activity_id=asked.activity_id,
        activity_type={"name": asked.activity_type},
        task_queue=TaskQueue(name=asked.task_queue or QUEUE),
        input=Payloads(payloads=asked.arguments),
        schedule_to_close_timeout=asked.schedule_to_close_timeout,
        start_to_close_timeout=asked.start_to_close_timeout,
        heartbeat_timeout=asked.heartbeat_timeout,
        retry_policy=asked.retry_policy,
        use_workflow_build_id=True,
        **by,
    )
    activity = Activity(server, run, event)
    run.activities[event.event_id] = activity
    eager = worker is not None and not asked.do_not_eagerly_execute
    activity.begin(eager=worker if eager else None)
    return eager


def _cancel(run: Run, activity: Activity) -> None:
    if not (activity.over or run.closed):
        activity.request_cancel()


def fire(server: Server, run: Run, timer_id: str) -> None:
    if timer_id not in run.timers or run.closed:
        return
    started, _ = run.timers[timer_id]

    def fired() -> Any:
        run.timers.pop(timer_id, None)
        return run.write("timer_fired", timer_id=timer_id, started_event_id=started)

    server.arrive_with(run, f"timer_fired {timer_id}", fired)


def _start_child(server: Server, run: Run, asked: Any, beside: dict[str, Any], by: dict[str, int]) -> None:
    initiated = run.write(
        "start_child_workflow_execution_initiated",
        beside=beside,
        namespace="default",
        workflow_id=asked.workflow_id,
        workflow_type={"name": asked.workflow_type},
        task_queue=TaskQueue(name=QUEUE),
        input=Payloads(payloads=asked.input),
        workflow_task_timeout=asked.workflow_task_timeout or Duration(),
        parent_close_policy=asked.parent_close_policy,
        **by,
    ).event_id
    kind = {"name": asked.workflow_type}

    def start() -> None:
        if run.closed:
            return
        latest = server.latest.get(asked.workflow_id)
        if latest and not server.runs[latest].closed:
            server.arrive(
                run,
                "start_child_workflow_execution_failed",
                namespace="default",
                workflow_id=asked.workflow_id,
                workflow_type=kind,
                initiated_event_id=initiated,
                cause=StartChildWorkflowExecutionFailedCause.START_CHILD_WORKFLOW_EXECUTION_FAILED_CAUSE_WORKFLOW_ALREADY_EXISTS,
            )
            return
        child = server.begin(asked.workflow_id, Payloads(payloads=asked.input), parent=(run, initiated))
        run.children[initiated] = child.id
        server.arrive(
            run,
            "child_workflow_execution_started",
            namespace="default",
            initiated_event_id=initiated,
            workflow_execution=WorkflowExecution(workflow_id=asked.workflow_id, run_id=child.id),
            workflow_type=kind,
        )

    server.soon(run.chance, start)


def _cancel_child(server: Server, run: Run, child_id: str, beside: dict[str, Any], by: dict[str, int]) -> None:
    execution = WorkflowExecution(workflow_id=child_id)
    initiated = run.write(
        "request_cancel_external_workflow_execution_initiated",
        beside=beside,
        namespace="default",
        workflow_execution=execution,
        child_workflow_only=True,
        **by,
    ).event_id

    def cancel() -> None:
        child = server.runs[server.latest[child_id]]
        server.request_cancel(child)
        server.arrive(
            run,
            "external_workflow_execution_cancel_requested",
            initiated_event_id=initiated,
            namespace="default",
            workflow_execution=execution,
        )

    server.soon(run.chance, cancel)


def _signal(server: Server, run: Run, asked: Any, beside: dict[str, Any], by: dict[str, int]) -> None:
    target = asked.child_workflow_id or asked.workflow_execution.workflow_id
    execution = WorkflowExecution(workflow_id=target)
    initiated = run.write(
        "signal_external_workflow_execution_initiated",
        beside=beside,
        namespace="default",
        workflow_execution=execution,
        signal_name=asked.signal_name,
        input=Payloads(payloads=asked.args),
        child_workflow_only=bool(asked.child_workflow_id),
        **by,
    ).event_id

    def signal() -> None:
        latest = server.latest.get(target)
        told = {"initiated_event_id": initiated, "namespace": "default", "workflow_execution": execution}
        if latest is None or server.runs[latest].closed:
            server.arrive(run, "signal_external_workflow_execution_failed", **told)
            return
        given = Payloads(payloads=asked.args)
        server.arrive(
            server.runs[latest],
            "workflow_execution_signaled",
            signal_name=asked.signal_name,
            input=given,
            external_workflow_execution=WorkflowExecution(workflow_id=run.workflow_id, run_id=run.id),
        )
        server.arrive(run, "external_workflow_execution_signaled", **told)

    server.soon(run.chance, signal)


def _close(server: Server, run: Run, closing: str, lang: Any, by: dict[str, int]) -> None:
    how = closing.removeprefix("workflow_execution_")
    match how:
        case "completed":
            result = Payloads(payloads=[lang.complete_workflow_execution.result])
            run.write(closing, result=result, **by)
            server.tell_parent(run, how, result=result)
        case "failed":
            run.write(closing, failure=lang.fail_workflow_execution.failure, **by)
            server.tell_parent(run, how, failure=lang.fail_workflow_execution.failure)
        case "canceled":
            run.write(closing, **by)
            server.tell_parent(run, how)
        case _:
            asked = lang.continue_as_new_workflow_execution
            given = Payloads(payloads=asked.arguments)
            task = run.task
            kept: dict[str, Any] = {"attributes": run.attributes, "memo": run.memo, "workflow_type": run.type}
            next_run = server.begin(run.workflow_id, given, continues=run, **kept)
            run.next_run_id = next_run.id
            assert run.task is task
            run.write(
                closing,
                new_execution_run_id=next_run.id,
                workflow_type={"name": run.type},
                task_queue=TaskQueue(name=QUEUE),
                input=given,
                workflow_task_timeout=Duration(seconds=5),
                **by,
            )


def _answer(update: Update, outcome: Outcome) -> None:
    if not update.done.done():
        update.done.set_result(outcome)
