"""Runs of workflows without a server and a worker: the SDK's own workflow instance gets what happens in a test, one
workflow task after the other, and says what it asks for.

`PlayedRun` is for any workflow, `PlayedConversation` for conversations. The whole workflow runs, as on a worker: with
the SDK's own scheduling, patches and replays. If a test calls one part of a conversation itself, and looks into its
state, it takes tests/support/fake_sdk.py.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import warnings
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Self
from uuid import UUID

from google.protobuf.timestamp_pb2 import Timestamp
from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent
from temporalio.bridge.proto.workflow_activation import WorkflowActivation, WorkflowActivationJob
from temporalio.bridge.proto.workflow_commands import WorkflowCommand
from temporalio.common import SearchAttributePair, TypedSearchAttributes
from temporalio.converter import encode_search_attributes
from temporalio.exceptions import ApplicationError, FailureError
from temporalio.exceptions import CancelledError as ActivityCancelled

from everturn import names
from everturn.payloads import ModelReply, Start
from everturn.records import Message, Text, ToolCall
from everturn.storage.data_converter import data_converter
from everturn.temporal.task_timeout import TASK_TIMEOUT
from everturn.workflows.conversation import ConversationWorkflow
from tests.simulation.temporal.instances import activated, create
from tests.simulation.temporal.sdk_commands import resolved
from tests.support.activity_errors import activity_error
from tests.support.payloads import payload_of, value_in

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
BEGAN_AT = BEGAN.timestamp()

WORKFLOW_ID = "played"
RUN_ID = str(UUID(int=1))

Job = WorkflowActivationJob
"""What a workflow task brings: a signal, a result ..."""

WITHOUT_EFFECT = ("set_patch_marker", "update_response")
"""Kinds of commands that ask for nothing."""


class Refused(Exception):
    """An update or a query that the workflow does not take."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class TaskFailed(Exception):
    """The workflow task failed: Temporal would repeat it."""


# ---------------------------------------------------------------- what a workflow asks for


@dataclass(frozen=True)
class Command:
    kind: str
    """In the words of the SDK's core: `schedule_activity`, `start_timer` ..."""
    summary: str
    attributes: Any
    """As the SDK's core gets them."""

    @classmethod
    def from_sdk(cls, command: WorkflowCommand) -> Command:
        kind = command.WhichOneof("variant") or ""
        summary = command.user_metadata.summary
        return cls(kind, value_in(summary) if summary.data else "", getattr(command, kind))

    @property
    def activity_type(self) -> str:
        return str(self.attributes.activity_type)

    @property
    def seconds(self) -> float:
        """After which a timer fires."""
        duration: timedelta = self.attributes.start_to_fire_timeout.ToTimedelta()
        return duration.total_seconds()

    @property
    def input(self) -> Any:
        """The only input of an activity, a signal or the next run."""
        is_signal = self.kind == "signal_external_workflow_execution"
        (payload,) = self.attributes.args if is_signal else self.attributes.arguments
        return value_in(payload)

    @property
    def result(self) -> Any:
        """With which the workflow completes."""
        return value_in(self.attributes.result)

    @property
    def search_attributes(self) -> dict[str, Any]:
        """Those that are written."""
        fields = self.attributes.search_attributes.indexed_fields
        return {name: value_in(payload) for name, payload in fields.items()}


def kinds(commands: Iterable[Command]) -> list[str]:
    return [command.kind for command in commands]


def only(commands: Iterable[Command], kind: str) -> Command:
    (command,) = (command for command in commands if command.kind == kind)
    return command


# ---------------------------------------------------------------- any workflow


class PlayedRun:
    """Most methods are a workflow task each, and return the run. `commands` says then what it has asked for."""

    def __init__(
        self,
        workflow_class: type[Any],
        *inputs: Any,
        continued: str = "",
        search_attributes: tuple[SearchAttributePair[Any], ...] = (),
        task_timeout: timedelta = TASK_TIMEOUT,
    ) -> None:
        """`continued`: the id of the run before. The run has not begun before its first task."""
        self.run_id = RUN_ID
        self.now = BEGAN
        self.history_bytes = 0
        self.history_length = 3
        self.suggested = False
        """The server suggests that the workflow goes on as a new run."""
        self.commands: list[Command] = []
        """Those of the last task, without its patches and its answers to updates."""
        self.first_commands: list[Command] = []
        """Those of the first task."""
        self.patches: list[str] = []
        """All so far."""
        self.logged: list[str] = []
        """Lines that the worker's log has of it."""
        self._all_commands: list[Command] = []
        self._open: dict[int, Command] = {}
        """The activities that have no result, by their numbers."""
        self._timers: dict[int, tuple[Command, datetime]] = {}
        """Those that run, and when they are due, by their numbers."""
        self._updates = 0
        self._answers: dict[str, Any] = {}
        definition = workflow._Definition.must_from_class(workflow_class)
        event = HistoryEvent(event_id=1, event_type=EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED)
        event.event_time.FromDatetime(BEGAN)
        started = event.workflow_execution_started_event_attributes
        started.workflow_type.name = definition.name or ""
        started.workflow_id, started.task_queue.name = WORKFLOW_ID, "queue"
        started.original_execution_run_id = started.first_execution_run_id = self.run_id
        started.continued_execution_run_id = continued
        started.workflow_task_timeout.FromTimedelta(task_timeout)
        if search_attributes:
            encode_search_attributes(TypedSearchAttributes([*search_attributes]), started.search_attributes)
        self._instance = asyncio.run(_created(event, definition))
        self._evict = weakref.finalize(self, _evict, self._instance)
        self._evict.atexit = False
        job = Job()
        job.initialize_workflow.workflow_id = WORKFLOW_ID
        job.initialize_workflow.workflow_type = started.workflow_type.name
        job.initialize_workflow.arguments.extend(payload_of(value) for value in inputs)
        self._first_jobs = [job]

    # ------------------------------------------------------------ what happens

    def begin(self) -> Self:
        """The first task."""
        return self.task()

    def task(self, *jobs: Job, replaying: bool = False) -> Self:
        """A workflow task that brings these jobs. Raises TaskFailed."""
        is_first = bool(self._first_jobs)
        jobs = (*self._first_jobs, *jobs)
        self._first_jobs = []
        for job in jobs:
            if job.HasField("resolve_activity"):
                del self._open[job.resolve_activity.seq]
        self.history_length += 5
        activation = WorkflowActivation(
            run_id=self.run_id,
            timestamp=_timestamp(self.now),
            is_replaying=replaying,
            history_length=self.history_length,
            history_size_bytes=self.history_bytes,
            continue_as_new_suggested=self.suggested,
            jobs=jobs,
        )
        with _listening(self.logged):
            completion = activated(self._instance, activation)
        if completion.HasField("failed"):
            self._forget()
            raise TaskFailed(completion.failed.failure.message)
        commands = [Command.from_sdk(command) for command in completion.successful.commands]
        for command in commands:
            self._take(command)
        self.commands = [command for command in commands if command.kind not in WITHOUT_EFFECT]
        self._all_commands += self.commands
        if is_first:
            self.first_commands = self.commands
        return self

    def pass_time(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def signal(self, name: str, payload: Any = None, **fields: Any) -> Self:
        return self.task(signalled(name, payload, **fields))

    def update(self, name: str, payload: Any = None, **fields: Any) -> Any:
        """What the workflow answers. Raises Refused."""
        self._updates += 1
        job = Job()
        update = job.do_update
        update.id = update.protocol_instance_id = f"update-{self._updates}"
        update.meta.update_id, update.name, update.run_validator = update.id, name, True
        update.input.append(payload_of(fields if payload is None else payload))
        self.task(job)
        answer = self._answers[update.id]
        if isinstance(answer, Failure):
            raise Refused(answer)
        return answer

    def query(self, name: str, **fields: Any) -> Any:
        """What the workflow answers. Raises Refused."""
        job = Job()
        job.query_workflow.query_id, job.query_workflow.query_type = "q", name
        if fields:
            job.query_workflow.arguments.append(payload_of(fields))
        activation = WorkflowActivation(run_id=self.run_id, timestamp=_timestamp(self.now), jobs=[job])
        (command,) = activated(self._instance, activation).successful.commands
        answer = command.respond_to_query
        if answer.HasField("failed"):
            raise Refused(answer.failed)
        return value_in(answer.succeeded.response)

    def cancel(self) -> Self:
        """Somebody cancels the workflow."""
        return self.task(workflow_cancelled())

    def fire(self, *timers: Command) -> Self:
        """These timers fire, all at once: when the last one is due, or later."""
        jobs = []
        for timer in timers:
            _, due = self._timers.pop(timer.attributes.seq)
            self.now = max(self.now, due)
            job = Job()
            job.fire_timer.seq = timer.attributes.seq
            jobs.append(job)
        return self.task(*jobs)

    def completed(self, activity: Command | str, result: Any = None) -> Job:
        """`activity`: one that is open, or its type."""
        return resolved(self._command_of(activity).attributes.seq, "completed", payload_of(result))

    def failed(self, activity: Command | str, cause: FailureError) -> Job:
        """`cause`: that of the ActivityError which the workflow gets."""
        return self._ended(activity, "failed", cause)

    def cancelled(self, activity: Command | str) -> Job:
        """It has ended as it was asked to."""
        return self._ended(activity, "cancelled", ActivityCancelled("cancelled"))

    def complete(self, activity: Command | str, result: Any = None) -> Self:
        return self.task(self.completed(activity, result))

    def fail(self, activity: Command | str, cause: FailureError) -> Self:
        return self.task(self.failed(activity, cause))

    def deliver(self, signal: Command, *, failed: str = "") -> Self:
        """A signal to another workflow has arrived, or has not, if `failed`."""
        job = Job()
        job.resolve_signal_external_workflow.seq = signal.attributes.seq
        if failed:
            job.resolve_signal_external_workflow.failure.CopyFrom(failure_of(ApplicationError(failed)))
        return self.task(job)

    # ------------------------------------------------------------ what it has asked for

    def of_kind(self, kind: str) -> list[Command]:
        """Of all tasks."""
        return [command for command in self._all_commands if command.kind == kind]

    def open_activity(self, activity_type: str) -> Command:
        """The first of this type that has no result."""
        return next(command for command in self._open.values() if command.activity_type == activity_type)

    @property
    def activities(self) -> list[str]:
        """The types of those that have no result."""
        return [command.activity_type for command in self._open.values()]

    @property
    def scheduled(self) -> list[str]:
        """The types of all activities that were ever scheduled."""
        return [command.activity_type for command in self.of_kind("schedule_activity")]

    @property
    def timers(self) -> list[Command]:
        """Those that run."""
        return [timer for timer, _ in self._timers.values()]

    # ------------------------------------------------------------ from commands

    def _take(self, command: Command) -> None:
        attributes = command.attributes
        match command.kind:
            case "schedule_activity" | "schedule_local_activity":
                self._open[attributes.seq] = command
            case "start_timer":
                self._timers[attributes.seq] = command, self.now + timedelta(seconds=command.seconds)
            case "cancel_timer":
                self._timers.pop(attributes.seq, None)
            case "set_patch_marker":
                self.patches.append(attributes.patch_id)
            case "update_response" if attributes.HasField("rejected"):
                self._answers[attributes.protocol_instance_id] = attributes.rejected
            case "update_response" if attributes.HasField("completed"):
                self._answers[attributes.protocol_instance_id] = value_in(attributes.completed)
            case _:
                pass

    def _command_of(self, activity: Command | str) -> Command:
        return self.open_activity(activity) if isinstance(activity, str) else activity

    def _ended(self, activity: Command | str, how: str, cause: FailureError) -> Job:
        attributes = self._command_of(activity).attributes
        error = activity_error(cause, activity_type=attributes.activity_type, activity_id=attributes.activity_id)
        return resolved(attributes.seq, how, failure_of(error))

    def _forget(self) -> None:
        """A run whose first task failed has begun nothing, of which Python would warn whenever it clears that away."""
        self._evict()
        self._instance = None
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "coroutine .* was never awaited")
            gc.collect()


# ---------------------------------------------------------------- conversations


class PlayedConversation(PlayedRun):
    """Each workflow task is a second after the one before."""

    def __init__(
        self,
        start: Start | Mapping[str, Any] | Payload | None = None,
        *,
        continued: str = "",
        search_attributes: tuple[SearchAttributePair[Any], ...] = (),
        task_timeout: timedelta = TASK_TIMEOUT,
        **fields: Any,
    ) -> None:
        """`fields`: the start's, if there is no `start`."""
        if start is None:
            start = Start(**{"agent": "clerk", "message": "Hello"} | fields)
        super().__init__(
            ConversationWorkflow,
            start,
            continued=continued,
            search_attributes=search_attributes,
            task_timeout=task_timeout,
        )

    def task(self, *jobs: Job, replaying: bool = False) -> Self:
        self.pass_time(1)
        return super().task(*jobs, replaying=replaying)

    def reply(self, text: str = "", *calls: ToolCall, **facts: Any) -> Self:
        """The model answers."""
        return self.task(self.replied(text, *calls, **facts))

    def replied(self, text: str = "", *calls: ToolCall, cut_short: bool = False, **facts: Any) -> Job:
        parts = (*((Text(text=text),) if text else ()), *calls)
        message = Message(role="assistant", parts=parts, cut_short=cut_short)
        return self.completed(names.CALL_MODEL, ModelReply(message=message, **{"cost_usd": 0.0} | facts))

    def fail_turn(self, kind: str = "Broken", **details: Any) -> Self:
        """The model turn fails for good, with an error of this type."""
        return self.task(self.turn_failed(kind, **details))

    def turn_failed(self, kind: str = "Broken", **details: Any) -> Job:
        return self.failed(names.CALL_MODEL, ApplicationError("it failed", details, type=kind, non_retryable=True))

    def request(self, activity_type: str = names.CALL_MODEL) -> dict[str, Any]:
        """The input of the open activity of this type."""
        return self.open_activity(activity_type).input  # type: ignore[no-any-return]

    @property
    def outcome(self) -> dict[str, Any] | None:
        """None if it has not ended."""
        ends = self.of_kind("complete_workflow_execution")
        return ends[0].result if ends else None

    @property
    def next_start(self) -> dict[str, Any] | None:
        """What the next run begins with; None if this one goes on."""
        moves = self.of_kind("continue_as_new_workflow_execution")
        return moves[0].input if moves else None

    @property
    def conversation(self) -> ConversationWorkflow:
        """As its worker has it in memory."""
        return self._instance._object  # type: ignore[no-any-return]

    @property
    def status(self) -> dict[str, Any]:
        return self.query(names.STATUS)  # type: ignore[no-any-return]

    @property
    def state(self) -> str:
        return self.status["state"]  # type: ignore[no-any-return]

    @property
    def listed(self) -> list[dict[str, Any]]:
        """The search attributes, each time they were written."""
        return [command.search_attributes for command in self.of_kind("upsert_workflow_search_attributes")]


# ---------------------------------------------------------------- what a task brings


def signalled(name: str, payload: Any = None, **fields: Any) -> Job:
    """`payload`: a value, or just as it comes, if it is a Payload. Without it, an object of `fields`."""
    job = Job()
    job.signal_workflow.signal_name, job.signal_workflow.originating_event_id = name, 1
    job.signal_workflow.input.append(payload_of(fields if payload is None else payload))
    return job


def patched(name: str) -> Job:
    """The history has this patch's marker."""
    job = Job()
    job.notify_has_patch.patch_id = name
    return job


def workflow_cancelled() -> Job:
    job = Job()
    job.cancel_workflow.SetInParent()
    return job


def failure_of(error: FailureError) -> Failure:
    failure = Failure()
    data_converter.failure_converter.to_failure(error, data_converter.payload_converter, failure)
    return failure


# ---------------------------------------------------------------- the SDK's instance


async def _created(event: HistoryEvent, definition: workflow._Definition) -> Any:
    """It needs a loop that runs, other than its own."""
    return create(event, RUN_ID, _timestamp(BEGAN), (), definition=definition)


def _evict(instance: Any) -> None:
    """As a worker does with a run that it does not keep: its tasks end, and say nothing any more."""
    job = Job()
    job.remove_from_cache.message = "evicted"
    activated(instance, WorkflowActivation(run_id=RUN_ID, jobs=[job]))


def _timestamp(moment: datetime) -> Timestamp:
    timestamp = Timestamp()
    timestamp.FromDatetime(moment)
    return timestamp


class _Listener(logging.Handler):
    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(record.getMessage())


@contextmanager
def _listening(lines: list[str]) -> Iterator[None]:
    logger = logging.getLogger("everturn.workflow")
    listener = _Listener(lines)
    logger.addHandler(listener)
    try:
        yield
    finally:
        logger.removeHandler(listener)
