"""What the SDK's core does in a worker: makes activations of events, and commands of what the workflow answers.

Live and in a replay alike. In a replay, each command has to be the one that the history has: else the code or its
facts have changed, which would hold up a real conversation for ever.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import WorkflowTaskFailedCause
from temporalio.api.failure.v1 import ChildWorkflowExecutionFailureInfo, Failure
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.update.v1 import Request
from temporalio.bridge.proto.child_workflow import StartChildWorkflowExecutionFailedCause as StartFailed
from temporalio.bridge.proto.workflow_activation import WorkflowActivation, WorkflowActivationJob
from temporalio.worker import WorkflowInboundInterceptor

from tests.simulation.temporal.history import attributes, kind, now
from tests.simulation.temporal.instances import activated, create, unsealed
from tests.simulation.temporal.sdk_commands import (
    CANCELLED,
    CLOSING,
    LOCAL,
    PATCH,
    Command,
    Commands,
    Local,
    TaskFailure,
    resolved,
)
from tests.simulation.temporal.sequences import TaskEvents, is_command, tasks

RESET = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_RESET_WORKFLOW
RUNS_ALREADY = StartFailed.START_CHILD_WORKFLOW_EXECUTION_FAILED_CAUSE_WORKFLOW_ALREADY_EXISTS


class CachedRun(Commands):
    """One run of a workflow, as a worker has it in memory."""

    def __init__(
        self, run_id: str, *, sealed: bool = False, interceptors: Sequence[type[WorkflowInboundInterceptor]] = ()
    ) -> None:
        super().__init__()
        self._sealed = sealed
        self._interceptors = interceptors
        self.run_id = run_id
        self.instance: Any = None
        self.done = 0
        """The start of the last workflow task that was taken in."""
        self._known_patches: set[str] = set()
        self._started: HistoryEvent | None = None
        self._flags: list[int] = []
        self._admitted: dict[str, Any] = {}
        """Updates that a reset has applied again, by their ids."""

    @property
    def state(self) -> Any:
        return self.instance._object._state

    # ------------------------------------------------------------ from events to activations

    def replay(self, history: Sequence[HistoryEvent]) -> TaskEvents | None:
        """Takes in all that was done; returns the task that is still to be done, if there is one."""
        for task in tasks(history, after=self.done):
            if task.last:
                return task
            self._replays = True
            self.begin(task, ())
            self.finished()
            self.match(task.answer)
        return None

    def begin(self, task: TaskEvents, updates: Iterable[Request]) -> None:
        """Gives the workflow what a task brings. `locals` may have to be run then, until there are none."""
        self._replays = not task.last
        if task.last:  # what has no marker in all of the history is run now
            self.locals |= {seq: Local(seq, lang) for seq, lang in self._unmarked.items()}
            self._unmarked.clear()
        self.outgoing, self.rejected, self._activations = [], [], 0
        self.match(event for event in task.events if is_command(event))
        self._started, self._time = task.started, task.started.event_time
        jobs = [job for event in task.events if (job := self._job(event))]
        for event in task.answer:
            self._look_ahead(event, jobs)
        jobs += [_do_update(request, run_validator=True) for request in updates]
        if jobs or not (self.locals or self._unmarked):
            self._activate(sorted(jobs, key=_order))
        self._go_on()
        self.done = task.started.event_id

    def finished(self) -> list[Command]:
        """The commands of the task, which the server makes events of."""
        sent = [message for message in self.outgoing if message.event not in CLOSING.values()]
        sent += [message for message in self.outgoing if message.event in CLOSING.values()][:1]
        self._expected.extend(sent)
        return sent

    def not_written(self, before: int) -> None:
        """The server wrote nothing of the last task: it was a speculative one that changed nothing. `before`: the last
        one that it has."""
        self.done = before

    def query(self, name: str, arguments: Iterable[Payload]) -> Any:
        job = WorkflowActivationJob()
        job.query_workflow.query_id, job.query_workflow.query_type = "q", name
        job.query_workflow.arguments.extend(arguments)
        completion = self._run([job])
        return completion.successful.commands[0].respond_to_query

    def evict(self) -> None:
        if self.instance is not None:
            job = WorkflowActivationJob()
            job.remove_from_cache.message = "evicted"
            self._run([job])
            self.instance = None
        for local in self.locals.values():
            if local.task:
                local.task.cancel()
        self.locals.clear()

    def resolve_local(self, seq: int, how: str, value: Any) -> None:
        """A local activity that ran has come to its end."""
        local = self.locals.pop(seq)
        self._time = now()
        self.mark(local, how, value)
        self._jobs.append(resolved(seq, how, value, is_local=True))
        self._go_on()

    def _look_ahead(self, event: HistoryEvent, jobs: list[WorkflowActivationJob]) -> None:
        """What the task answered then decides what it is given now."""
        match kind(event):
            case "workflow_execution_update_accepted":
                accepted = attributes(event)
                request = self._admitted.get(accepted.protocol_instance_id) or accepted.accepted_request
                jobs.append(_do_update(request, run_validator=False))
            case "marker_recorded":
                marker = attributes(event)
                if marker.marker_name == PATCH:
                    patch = json.loads(marker.details["patch-data"].payloads[0].data)["id"]
                    if patch not in self._known_patches:
                        self._known_patches.add(patch)
                        job = WorkflowActivationJob()
                        job.notify_has_patch.patch_id = patch
                        jobs.append(job)
                elif marker.marker_name == LOCAL:
                    data = json.loads(marker.details["data"].payloads[0].data)
                    self._markers[data["seq"]] = (data, marker)
            case _:
                pass

    def _job(self, event: HistoryEvent) -> WorkflowActivationJob | None:
        """What the workflow is told of an event that came from outside."""
        job, given = WorkflowActivationJob(), attributes(event)
        match kind(event):
            case "workflow_execution_started":
                init = job.initialize_workflow
                init.workflow_type, init.workflow_id = given.workflow_type.name, given.workflow_id
                init.arguments.extend(given.input.payloads)
                self.instance = create(event, self.run_id, self._time, self._interceptors)
            case "workflow_execution_signaled":
                job.signal_workflow.signal_name = given.signal_name
                job.signal_workflow.input.extend(given.input.payloads)
                job.signal_workflow.identity = given.identity
                job.signal_workflow.originating_event_id = event.event_id
            case "workflow_execution_cancel_requested":
                job.cancel_workflow.SetInParent()
            case "workflow_execution_update_admitted":
                self._admitted[given.request.meta.update_id] = given.request
                return None  # it comes as a message of the task
            case "workflow_task_failed" if given.cause == RESET:
                job.update_random_seed.randomness_seed = UUID(given.new_run_id).int & (2**63 - 1)
            case "timer_fired":
                if int(given.timer_id) not in self._timers:
                    return None
                self._timers.discard(int(given.timer_id))
                job.fire_timer.seq = int(given.timer_id)
            case (
                "activity_task_completed"
                | "activity_task_failed"
                | "activity_task_timed_out"
                | "activity_task_canceled"
            ):
                return self._activity_ended(event)
            case "start_child_workflow_execution_failed" | "child_workflow_execution_started":
                return self._child_begun(event)
            case name if name.startswith("child_workflow_execution_"):
                return self._child_ended(event)
            case "external_workflow_execution_signaled":
                job.resolve_signal_external_workflow.seq = self._seq_of[given.initiated_event_id]
            case "signal_external_workflow_execution_failed":
                job.resolve_signal_external_workflow.seq = self._seq_of[given.initiated_event_id]
                job.resolve_signal_external_workflow.failure.message = "workflow was not found"
                job.resolve_signal_external_workflow.failure.application_failure_info.SetInParent()
            case _:
                return None
        return job

    def _activity_ended(self, event: HistoryEvent) -> WorkflowActivationJob | None:
        given = attributes(event)
        seq = self._seq_of[given.scheduled_event_id]
        asked = self._activities.pop(seq, None)
        if asked is None:
            return None  # it was cancelled, and the workflow has gone on
        match kind(event):
            case "activity_task_completed":
                return resolved(seq, "completed", given.result.payloads[0])
            case "activity_task_canceled":
                return resolved(seq, "cancelled", self.wrapped(seq, asked, CANCELLED, given))
            case _:
                return resolved(seq, "failed", self.wrapped(seq, asked, given.failure, given))

    def _child_begun(self, event: HistoryEvent) -> WorkflowActivationJob | None:
        given, job = attributes(event), WorkflowActivationJob()
        seq = self._seq_of[given.initiated_event_id]
        if seq not in self._children:
            return None
        begun = job.resolve_child_workflow_execution_start
        begun.seq = seq
        if kind(event) == "child_workflow_execution_started":
            self._started_children[seq] = begun.succeeded.run_id = given.workflow_execution.run_id
        else:
            self._children.pop(seq)
            begun.failed.workflow_id, begun.failed.workflow_type = given.workflow_id, given.workflow_type.name
            begun.failed.cause = RUNS_ALREADY
        return job

    def _child_ended(self, event: HistoryEvent) -> WorkflowActivationJob | None:
        given, job = attributes(event), WorkflowActivationJob()
        seq = self._seq_of[given.initiated_event_id]
        if self._children.pop(seq, None) is None:
            return None
        ended = job.resolve_child_workflow_execution
        ended.seq = seq
        how = kind(event).removeprefix("child_workflow_execution_")
        if how == "completed":
            ended.result.completed.result.CopyFrom(given.result.payloads[0])
            return job
        info = ChildWorkflowExecutionFailureInfo(workflow_execution=given.workflow_execution)
        info.workflow_type.name = "Conversation"
        failed = Failure(message="Child Workflow execution failed", child_workflow_execution_failure_info=info)
        if how == "canceled":
            failed.cause.CopyFrom(CANCELLED)
            ended.result.cancelled.failure.CopyFrom(failed)
            return job
        if how == "terminated":
            failed.cause.terminated_failure_info.SetInParent()
        else:
            failed.cause.CopyFrom(given.failure)
        ended.result.failed.failure.CopyFrom(failed)
        return job

    # ------------------------------------------------------------ the workflow

    def _activate(self, jobs: list[WorkflowActivationJob]) -> None:
        self._activations += 1
        completion = self._run(jobs)
        if completion.HasField("failed"):
            raise TaskFailure(completion.failed.failure.message + "\n" + completion.failed.failure.stack_trace)
        self._flags.extend(completion.successful.used_internal_flags)
        for command in completion.successful.commands:
            self.take_command(command)

    def _go_on(self) -> None:
        """Gives the workflow what followed from its own commands, within the same task."""
        while self.resolve_by_markers():
            jobs, self._jobs = self._jobs, []
            self._activate(jobs)

    def _run(self, jobs: list[WorkflowActivationJob]) -> Any:
        started = attributes(self._started) if self._started else None
        activation = WorkflowActivation(
            run_id=self.run_id,
            timestamp=self._time,
            is_replaying=self._replays,
            history_length=self._started.event_id if self._started else 0,
            history_size_bytes=started.history_size_bytes if started else 0,
            continue_as_new_suggested=started.suggest_continue_as_new if started else False,
            available_internal_flags=self._flags,
            jobs=jobs,
        )
        return unsealed(self.instance, activation) if self._sealed else activated(self.instance, activation)


def _order(job: WorkflowActivationJob) -> int:
    match job.WhichOneof("variant"):
        case "initialize_workflow":
            return 1
        case "notify_has_patch":
            return 2
        case "signal_workflow" | "do_update":
            return 4
        case _:
            return 5


def _do_update(request: Any, *, run_validator: bool) -> WorkflowActivationJob:
    job = WorkflowActivationJob()
    update = job.do_update
    update.id = update.protocol_instance_id = request.meta.update_id
    update.name, update.run_validator = request.input.name, run_validator
    update.input.extend(request.input.args.payloads)
    update.meta.update_id, update.meta.identity = request.meta.update_id, request.meta.identity
    return job
