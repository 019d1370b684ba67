"""Runs of a workflow that a test plays the server for: by the SDK's own instance, without a worker and a server."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from temporalio import workflow
from temporalio.api.common.v1 import Payload, Payloads
from temporalio.api.enums.v1 import TimeoutType
from temporalio.api.failure.v1 import Failure
from temporalio.bridge.proto.workflow_activation import (
    CancelWorkflow,
    FireTimer,
    WorkflowActivation,
    WorkflowActivationJob,
)
from temporalio.bridge.proto.workflow_commands import WorkflowCommand
from temporalio.common import Priority, TypedSearchAttributes
from temporalio.exceptions import ApplicationError
from temporalio.worker import UnsandboxedWorkflowRunner, WorkflowInstanceDetails

from everturn.storage.data_converter import data_converter
from everturn.temporal.task_timeout import TASK_TIMEOUT

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
BEGAN_AT = BEGAN.timestamp()

_payloads = data_converter.payload_converter


@dataclass(frozen=True)
class Command:
    kind: str
    """In the words of the SDK's core: `schedule_activity`, `start_timer` ..."""
    summary: str
    given: Any

    @classmethod
    def from_sdk(cls, command: WorkflowCommand) -> Command:
        kind = command.WhichOneof("variant") or ""
        summary = command.user_metadata.summary
        return cls(kind, value_in(summary) if summary.data else "", getattr(command, kind))

    @property
    def seconds(self) -> float:
        """After which a timer rings."""
        duration: timedelta = self.given.start_to_fire_timeout.ToTimedelta()
        return duration.total_seconds()

    @property
    def input(self) -> Any:
        """The one that an activity, a signal or the next run is given."""
        (payload,) = self.given.args if self.kind == "signal_external_workflow_execution" else self.given.arguments
        return value_in(payload)


class PlayedRun:
    """Each step hands something in, and returns the commands that answer it, patches left out."""

    def __init__(self, workflow_class: type[Any], *inputs: Any, continued: bool = False) -> None:
        definition = workflow._Definition.must_from_class(workflow_class)
        self.now = BEGAN
        self.suggested = False
        """The server suggests that the workflow goes on as a new run."""
        self._timers: dict[int, datetime] = {}
        self._updates = 0
        info = workflow.Info(
            attempt=1,
            continued_run_id="before" if continued else None,
            cron_schedule=None,
            execution_timeout=None,
            first_execution_run_id="run",
            headers={},
            namespace="default",
            original_execution_run_id="run",
            parent=None,
            root=None,
            raw_memo={},
            retry_policy=None,
            run_id="run",
            run_timeout=None,
            search_attributes={},
            start_time=BEGAN,
            workflow_start_time=BEGAN,
            task_queue="queue",
            task_timeout=TASK_TIMEOUT,
            typed_search_attributes=TypedSearchAttributes.empty,
            workflow_id="played",
            workflow_type=definition.name or "",
            priority=Priority.default,
        )
        details = WorkflowInstanceDetails(
            payload_converter_factory=data_converter._new_payload_converter,
            failure_converter_class=data_converter.failure_converter_class,
            interceptor_classes=[],
            defn=definition,
            info=info,
            randomness_seed=UUID(int=7).int,
            extern_functions={"__temporal_assert_local_activity_valid": lambda _: None},
            disable_eager_activity_execution=False,
            worker_level_failure_exception_types=[],
            patch_activation_callback=None,
            last_completion_result=Payloads(),
            last_failure=None,
        )
        self._instance: Any = asyncio.run(_instance_of(details))
        job = WorkflowActivationJob()
        job.initialize_workflow.workflow_id = info.workflow_id
        job.initialize_workflow.workflow_type = info.workflow_type
        job.initialize_workflow.arguments.extend(_payloads.to_payloads(inputs))
        self.begun = self.step(job)

    # ------------------------------------------------------------ what comes in

    def step(self, *jobs: WorkflowActivationJob) -> list[Command]:
        """Raises AssertionError if the workflow task fails."""
        commands = [Command.from_sdk(command) for command in self._activate(*jobs)]
        for command in commands:
            if command.kind == "start_timer":
                self._timers[command.given.seq] = self.now + command.given.start_to_fire_timeout.ToTimedelta()
        return [command for command in commands if command.kind != "set_patch_marker"]

    def _activate(self, *jobs: WorkflowActivationJob) -> Any:
        activation = WorkflowActivation(
            run_id="run", history_length=3, continue_as_new_suggested=self.suggested, jobs=jobs
        )
        activation.timestamp.FromDatetime(self.now)
        completion = self._instance.activate(activation)
        assert not completion.HasField("failed"), completion.failed.failure
        return completion.successful.commands

    def pass_time(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def signal(self, name: str, *inputs: Any) -> list[Command]:
        return self.step(signalled(name, *inputs))

    def update(self, name: str, *inputs: Any) -> tuple[Any, list[Command]]:
        """Its answer, or the failure with which it is refused; and the commands beside that."""
        self._updates += 1
        job = WorkflowActivationJob()
        job.do_update.id = job.do_update.protocol_instance_id = job.do_update.meta.update_id = str(self._updates)
        job.do_update.name, job.do_update.run_validator = name, True
        job.do_update.input.extend(_payloads.to_payloads(inputs))
        commands = self.step(job)
        answers = [command.given for command in commands if command.kind == "update_response"]
        (answer,) = (each for each in answers if not each.HasField("accepted"))
        others = [command for command in commands if command.kind != "update_response"]
        return (answer.rejected if answer.HasField("rejected") else value_in(answer.completed)), others

    def query(self, name: str) -> Any:
        job = WorkflowActivationJob()
        job.query_workflow.query_id, job.query_workflow.query_type = "q", name
        (command,) = self._activate(job)
        return value_in(command.respond_to_query.succeeded.response)

    def cancel(self) -> list[Command]:
        return self.step(WorkflowActivationJob(cancel_workflow=CancelWorkflow(reason="a test cancels it")))

    def fire(self, timer: Command) -> list[Command]:
        """When it is due, or later."""
        self.now = max(self.now, self._timers.pop(timer.given.seq))
        return self.step(WorkflowActivationJob(fire_timer=FireTimer(seq=timer.given.seq)))

    def complete(self, activity: Command, result: Any = None) -> list[Command]:
        job = WorkflowActivationJob()
        job.resolve_activity.seq = activity.given.seq
        job.resolve_activity.result.completed.result.CopyFrom(_payloads.to_payload(result))
        return self.step(job)

    def fail(self, activity: Command, cause: Failure | ApplicationError) -> list[Command]:
        """`cause`: that of the ActivityError which the workflow gets."""
        job = WorkflowActivationJob()
        job.resolve_activity.seq = activity.given.seq
        failure = job.resolve_activity.result.failed.failure
        failure.message = "Activity task failed"
        failure.activity_failure_info.activity_id = activity.given.activity_id
        failure.activity_failure_info.activity_type.name = activity.given.activity_type
        failure.cause.CopyFrom(as_failure(cause))
        return self.step(job)

    def sent(self, signal: Command, *, failed: str = "") -> list[Command]:
        """A signal to another workflow has arrived, or has not, if `failed`."""
        job = WorkflowActivationJob()
        job.resolve_signal_external_workflow.seq = signal.given.seq
        if failed:
            job.resolve_signal_external_workflow.failure.CopyFrom(as_failure(ApplicationError(failed)))
        return self.step(job)


async def _instance_of(details: WorkflowInstanceDetails) -> Any:
    """It wants a loop to run that is not its own."""
    return UnsandboxedWorkflowRunner().create_instance(details)


def signalled(name: str, *inputs: Any) -> WorkflowActivationJob:
    job = WorkflowActivationJob()
    job.signal_workflow.signal_name, job.signal_workflow.originating_event_id = name, 4
    job.signal_workflow.input.extend(_payloads.to_payloads(inputs))
    return job


def as_failure(cause: Failure | ApplicationError) -> Failure:
    if isinstance(cause, Failure):
        return cause
    failure = Failure()
    data_converter.failure_converter.to_failure(cause, _payloads, failure)
    return failure


def timed_out(kind: Any = TimeoutType.TIMEOUT_TYPE_HEARTBEAT) -> Failure:
    failure = Failure(message="activity timed out")
    failure.timeout_failure_info.timeout_type = kind
    return failure


def value_in(payload: Payload) -> Any:
    return _payloads.from_payload(payload)
