"""A run of a conversation without a server: the SDK's own workflow instance is told what happens, one workflow task
after the other, and says what it asks for."""

from __future__ import annotations

import asyncio
import gc
import logging
import warnings
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Self
from uuid import UUID

from google.protobuf.json_format import MessageToDict
from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent
from temporalio.bridge.proto.workflow_activation import WorkflowActivation, WorkflowActivationJob
from temporalio.common import SearchAttributePair, TypedSearchAttributes
from temporalio.converter import encode_search_attributes
from temporalio.exceptions import ApplicationError, FailureError
from temporalio.exceptions import CancelledError as ActivityCancelled

from everturn import names
from everturn.payloads import ModelReply, Start
from everturn.records import Message, Text, ToolCall
from everturn.storage.data_converter import NOT_HAD, data_converter
from everturn.temporal.task_timeout import TASK_TIMEOUT
from everturn.workflows.conversation import ConversationWorkflow
from tests.simulation.temporal.instances import activated, create
from tests.simulation.temporal.sdk_commands import resolved
from tests.support.activity_errors import activity_error

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)

RUN = str(UUID(int=1))

Command = dict[str, Any]


class Refused(Exception):
    """An update that the conversation does not take."""


class TaskFailed(Exception):
    """The workflow task failed: Temporal would repeat it."""


class OneRun:
    def __init__(
        self,
        start: Start | Mapping[str, Any] | Payload | None = None,
        *,
        run_id: str = RUN,
        continued: str = "",
        attributes: tuple[SearchAttributePair[Any], ...] = (),
        task_timeout: timedelta = TASK_TIMEOUT,
        **given: Any,
    ) -> None:
        """`given`: the start's fields, if there is no `start`. The run has not begun before its first task."""
        if start is None:
            start = Start(**{"agent": "clerk", "message": "Hello"} | given)
        self.now = BEGAN
        self.history_bytes = 0
        self.history_length = 3
        self.suggested = False
        self.commands: list[Command] = []
        """All so far, with what is in their payloads."""
        self.last: list[Command] = []
        """Those of the last task."""
        self.patches: list[str] = []
        self.open: dict[int, Command] = {}
        """The activities that have no result, by their numbers."""
        self.timers: dict[int, float] = {}
        """Seconds, by their numbers."""
        self.logged: list[str] = []
        """The worker's log has these lines of it."""
        self._updates = 0
        self._answers: dict[str, Any] = {}
        event = HistoryEvent(event_id=1, event_type=EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED)
        event.event_time.FromDatetime(BEGAN)
        begun = event.workflow_execution_started_event_attributes
        begun.workflow_type.name, begun.workflow_id, begun.task_queue.name = names.CONVERSATION, "talk", "queue"
        begun.original_execution_run_id = begun.first_execution_run_id = run_id
        begun.continued_execution_run_id = continued
        begun.workflow_task_timeout.FromTimedelta(task_timeout)
        if attributes:
            encode_search_attributes(TypedSearchAttributes([*attributes]), begun.search_attributes)
        self.run_id = run_id
        self._instance = asyncio.run(_created(event, run_id))
        self._evict = weakref.finalize(self, _evict, self._instance, run_id)
        self._evict.atexit = False
        init = WorkflowActivationJob()
        init.initialize_workflow.workflow_type, init.initialize_workflow.workflow_id = names.CONVERSATION, "talk"
        init.initialize_workflow.arguments.extend([start] if isinstance(start, Payload) else _payloads(start))
        self._next = [init]

    # ------------------------------------------------------------ what happens

    def begin(self) -> Self:
        """The first task."""
        return self.task()

    def task(self, *jobs: WorkflowActivationJob, replaying: bool = False) -> Self:
        """A task that brings these, after what was put off to it."""
        jobs = (*self._next, *jobs)
        self._next = []
        for job in jobs:
            if job.HasField("resolve_activity"):
                del self.open[job.resolve_activity.seq]
        self.now += timedelta(seconds=1)
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
        self.last = []
        for command in completion.successful.commands:
            kind = command.WhichOneof("variant")
            assert kind
            self._take(kind, getattr(command, kind), command)
        return self

    def later(self, *jobs: WorkflowActivationJob) -> Self:
        """The next task brings these first."""
        self._next += jobs
        return self

    def reply(self, text: str = "", *calls: ToolCall, **facts: Any) -> Self:
        """The model answers."""
        return self.task(self.replied(text, *calls, **facts))

    def replied(self, text: str = "", *calls: ToolCall, cut_short: bool = False, **facts: Any) -> WorkflowActivationJob:
        parts = (*((Text(text=text),) if text else ()), *calls)
        message = Message(role="assistant", parts=parts, cut_short=cut_short)
        return self.ended(names.CALL_MODEL, ModelReply(message=message, **{"cost_usd": 0.0} | facts))

    def ended(self, activity: str, value: Any) -> WorkflowActivationJob:
        """The activity of this type has this result."""
        (payload,) = _payloads(value)
        return resolved(self._number_of(activity), "completed", payload)

    def failed(self, activity: str, kind: str, **details: Any) -> WorkflowActivationJob:
        """It has failed for good, with an error of this type."""
        error = ApplicationError("it failed", details, type=kind, non_retryable=True)
        return resolved(self._number_of(activity), "failed", _failure(activity_error(error)))

    def fail(self, kind: str = "Broken", **details: Any) -> Self:
        """A model turn fails for good."""
        return self.task(self.failed(names.CALL_MODEL, kind, **details))

    def cancelled(self, activity: str) -> WorkflowActivationJob:
        """It has ended as it was asked to."""
        failure = _failure(activity_error(ActivityCancelled("cancelled")))
        return resolved(self._number_of(activity), "cancelled", failure)

    def signal(self, name: str, **payload: Any) -> Self:
        return self.task(signalled(name, payload))

    def update(self, name: str, **payload: Any) -> Any:
        """What the conversation answers. Raises Refused."""
        self._updates += 1
        job = WorkflowActivationJob()
        update = job.do_update
        update.id = update.protocol_instance_id = f"update-{self._updates}"
        update.meta.update_id, update.name, update.run_validator = update.id, name, True
        update.input.extend(_payloads(payload))
        self.task(job)
        answer = self._answers[update.id]
        if isinstance(answer, Failure):
            raise Refused(answer.message)
        return answer

    def query(self, name: str, **payload: Any) -> Any:
        job = WorkflowActivationJob()
        job.query_workflow.query_id, job.query_workflow.query_type = "q", name
        job.query_workflow.arguments.extend(_payloads(payload))
        activation = WorkflowActivation(run_id=self.run_id, timestamp=_timestamp(self.now), jobs=[job])
        (command,) = activated(self._instance, activation).successful.commands
        answer = command.respond_to_query
        if answer.HasField("failed"):
            raise Refused(answer.failed.message)
        return _value(answer.succeeded.response)

    def cancel(self) -> Self:
        """Somebody cancels the workflow."""
        return self.task(workflow_cancelled())

    def fire_timers(self) -> Self:
        """Those that run end, all at once."""
        self.now += timedelta(seconds=max(self.timers.values()))
        jobs = []
        for number in self.timers:
            job = WorkflowActivationJob()
            job.fire_timer.seq = number
            jobs.append(job)
        self.timers.clear()
        return self.task(*jobs)

    # ------------------------------------------------------------ what it has asked for

    @property
    def activities(self) -> list[str]:
        """The types of the open ones."""
        return [command["activity_type"] for command in self.open.values()]

    @property
    def asked(self) -> list[str]:
        """The types of all that were ever scheduled."""
        return [command["activity_type"] for command in self.commands if command["kind"] == "schedule_activity"]

    def request(self, activity: str = names.CALL_MODEL) -> dict[str, Any]:
        """The input of the open activity of this type."""
        return self.open[self._number_of(activity)]["arguments"][0]  # type: ignore[no-any-return]

    @property
    def outcome(self) -> dict[str, Any] | None:
        """None if it has not ended."""
        ended = self.of_kind("complete_workflow_execution")
        return ended[0]["result"] if ended else None

    @property
    def handed(self) -> dict[str, Any] | None:
        """What the next run begins with; None if it goes on."""
        moved = self.of_kind("continue_as_new_workflow_execution")
        return moved[0]["arguments"][0] if moved else None

    def of_kind(self, kind: str) -> list[Command]:
        return [command for command in self.commands if command["kind"] == kind]

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
    def shown(self) -> list[dict[str, Any]]:
        """The search attributes, each time they were written."""
        return [command["search_attributes"] for command in self.of_kind("upsert_workflow_search_attributes")]

    # ------------------------------------------------------------ from commands

    def _forget(self) -> None:
        """A run whose first task failed has begun nothing, of which Python would warn whenever it clears that away."""
        self._evict()
        self._instance = None
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "coroutine .* was never awaited")
            gc.collect()

    def _take(self, kind: str, message: Any, whole: Any) -> None:
        command: Command = {"kind": kind, **MessageToDict(message, preserving_proto_field_name=True)}
        command["summary"] = _value(whole.user_metadata.summary) if whole.user_metadata.summary.data else ""
        for field in ("arguments", "args"):
            if hasattr(message, field):
                command["arguments"] = [_value(payload) for payload in getattr(message, field)]
        match kind:
            case "schedule_activity" | "schedule_local_activity":
                self.open[message.seq] = command
            case "start_timer":
                self.timers[message.seq] = message.start_to_fire_timeout.ToTimedelta().total_seconds()
            case "cancel_timer":
                self.timers.pop(message.seq, None)
            case "set_patch_marker":
                self.patches.append(message.patch_id)
            case "complete_workflow_execution":
                command["result"] = _value(message.result)
            case "upsert_workflow_search_attributes":
                fields = message.search_attributes.indexed_fields
                command["search_attributes"] = {name: _value(payload) for name, payload in fields.items()}
            case "update_response":
                if message.HasField("rejected"):
                    self._answers[message.protocol_instance_id] = message.rejected
                elif message.HasField("completed"):
                    self._answers[message.protocol_instance_id] = _value(message.completed)
            case _:
                pass
        self.commands.append(command)
        self.last.append(command)

    def _number_of(self, activity: str) -> int:
        return next(number for number, command in self.open.items() if command["activity_type"] == activity)


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


def signalled(name: str, payload: Mapping[str, Any] | Payload | None = None) -> WorkflowActivationJob:
    """`payload`: as JSON, or just as it comes."""
    job = WorkflowActivationJob()
    job.signal_workflow.signal_name, job.signal_workflow.originating_event_id = name, 1
    job.signal_workflow.input.extend([payload] if isinstance(payload, Payload) else _payloads(payload or {}))
    return job


def patched(name: str) -> WorkflowActivationJob:
    """The history has this patch's marker."""
    job = WorkflowActivationJob()
    job.notify_has_patch.patch_id = name
    return job


def elsewhere(why: str) -> Payload:
    """What this worker can't read, though another one may be able to."""
    return Payload(metadata={"encoding": NOT_HAD}, data=why.encode())


def workflow_cancelled() -> WorkflowActivationJob:
    job = WorkflowActivationJob()
    job.cancel_workflow.SetInParent()
    return job


async def _created(event: HistoryEvent, run_id: str) -> Any:
    return create(event, run_id, _timestamp(BEGAN), ())


def _evict(instance: Any, run_id: str) -> None:
    """As a worker does with a run that it does not keep: its tasks end, and say nothing any more."""
    job = WorkflowActivationJob()
    job.remove_from_cache.message = "evicted"
    activated(instance, WorkflowActivation(run_id=run_id, jobs=[job]))


def _timestamp(moment: datetime) -> Timestamp:
    timestamp = Timestamp()
    timestamp.FromDatetime(moment)
    return timestamp


def _payloads(value: Any) -> Any:
    return data_converter.payload_converter.to_payloads([value])


def _value(payload: Any) -> Any:
    (value,) = data_converter.payload_converter.from_payloads([payload])
    return value


def _failure(error: FailureError) -> Failure:
    failure = Failure()
    data_converter.failure_converter.to_failure(error, data_converter.payload_converter, failure)
    return failure
