"""What the SDK's core makes of a workflow's commands, and how a replay holds them against a history."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import (
    ActivityFailureInfo,
    ApplicationFailureInfo,
    CanceledFailureInfo,
    ChildWorkflowExecutionFailureInfo,
    Failure,
)
from temporalio.api.history.v1 import HistoryEvent
from temporalio.bridge.proto.activity_result import DoBackoff
from temporalio.bridge.proto.workflow_activation import WorkflowActivationJob
from temporalio.bridge.proto.workflow_commands import ActivityCancellationType, WorkflowCommand

from tests.simulation.temporal.history import attributes, kind
from tests.simulation.temporal.sequences import is_command

CANCELLED = Failure(message="Cancelled", source="CoreSDK", canceled_failure_info=CanceledFailureInfo())
BACKS_OFF = Failure(message="it is tried again later", application_failure_info=ApplicationFailureInfo())
LOCAL, PATCH = "core_local_activity", "core_patch"
CLOSING = {
    "complete_workflow_execution": "workflow_execution_completed",
    "fail_workflow_execution": "workflow_execution_failed",
    "cancel_workflow_execution": "workflow_execution_canceled",
    "continue_as_new_workflow_execution": "workflow_execution_continued_as_new",
}


class TaskFailure(Exception):
    """The workflow's code failed, or asked for what can't be, and its task failed with it."""


class Nondeterminism(Exception):
    """A replay did something else than the history says."""


@dataclass(eq=False)
class Command:
    """One that is sent to the server, which makes an event of it."""

    event: str
    """Its kind."""
    key: str
    """By which a replay knows it."""
    lang: WorkflowCommand
    """As the workflow gave it."""
    marker: dict[str, list[Payload]] = field(default_factory=dict)
    failure: Failure | None = None


@dataclass(eq=False)
class Local:
    seq: int
    asked: Any
    task: asyncio.Task[Any] | None = None


class Commands:
    """Of one run, in one worker's memory."""

    def __init__(self) -> None:
        self.outgoing: list[Command] = []
        """Of the workflow task at hand."""
        self.rejected: list[tuple[str, Failure]] = []
        self.locals: dict[int, Local] = {}
        """Local activities that are to be run now."""
        self._unmarked: dict[int, Any] = {}
        """Those of a replay that have no marker yet: their end came in a later task, or is still to come."""
        self._replays, self._activations = False, 0  # in the workflow task at hand
        self._time = Timestamp()
        self._expected: deque[Command] = deque()
        self._matched = 0
        """The last event that was held against a command."""
        self._activities: dict[int, Any] = {}
        """Those that have not been resolved, by their seq."""
        self._seq_of: dict[int, int] = {}
        """Of activities, children, and signals to others, by the event that began them."""
        self._began: dict[int, int] = {}
        """The event that began an activity, by its seq."""
        self._children: dict[int, Any] = {}
        self._started_children: dict[int, str] = {}
        self._asked_to_end: set[int] = set()
        self._timers: set[int] = set()
        self._patches: list[str] = []
        self._markers: dict[int, tuple[Any, Any]] = {}
        """How local activities ended, as the history says, by their seq."""
        self._jobs: list[WorkflowActivationJob] = []
        """What follows from the commands, for the workflow to know within the same task."""

    def take_command(self, lang: WorkflowCommand) -> None:
        name = lang.WhichOneof("variant") or ""
        given: Any = getattr(lang, name)
        match name:
            case "schedule_activity":
                self._activities[given.seq] = given
                self.outgoing.append(Command("activity_task_scheduled", given.activity_id, lang))
            case "request_cancel_activity":
                self._cancel_activity(given.seq, lang)
            case "schedule_local_activity":
                self._run_local(given.seq, lang)
            case "request_cancel_local_activity":
                self._cancel_local(given.seq)
            case "start_timer":
                self._timers.add(given.seq)
                self.outgoing.append(Command("timer_started", str(given.seq), lang))
            case "cancel_timer":
                if given.seq in self._timers:
                    self._timers.discard(given.seq)
                    if not self._unsent("timer_started", str(given.seq)):
                        self.outgoing.append(Command("timer_canceled", str(given.seq), lang))
            case "set_patch_marker":
                if given.patch_id not in self._patches:
                    self._patches.append(given.patch_id)
                    data = json.dumps({"id": given.patch_id, "deprecated": given.deprecated}).encode()
                    marker = {"patch-data": [Payload(metadata={"encoding": b"json/plain"}, data=data)]}
                    self.outgoing.append(Command("marker_recorded", f"{PATCH} {given.patch_id}", lang, marker))
                    upsert = WorkflowCommand()
                    upsert.upsert_workflow_search_attributes.search_attributes.indexed_fields[
                        "TemporalChangeVersion"
                    ].CopyFrom(
                        Payload(
                            metadata={"encoding": b"json/plain", "type": b"KeywordList"},
                            data=json.dumps(self._patches).encode(),
                        )
                    )
                    self.outgoing.append(Command("upsert_workflow_search_attributes", "", upsert))
            case "upsert_workflow_search_attributes":
                self.outgoing.append(Command("upsert_workflow_search_attributes", "", lang))
            case "modify_workflow_properties":
                self.outgoing.append(Command("workflow_properties_modified", "", lang))
            case "start_child_workflow_execution":
                self._children[given.seq] = lang
                self.outgoing.append(Command("start_child_workflow_execution_initiated", given.workflow_id, lang))
            case "cancel_child_workflow_execution":
                self._cancel_child(given.child_workflow_seq, lang)
            case "signal_external_workflow_execution":
                self.outgoing.append(
                    Command("signal_external_workflow_execution_initiated", given.child_workflow_id, lang)
                )
            case "cancel_signal_workflow":
                self._cancel_signal(given.seq)
            case "update_response":
                if given.HasField("rejected"):
                    self.rejected.append((given.protocol_instance_id, given.rejected))
                else:
                    how = "accepted" if given.HasField("accepted") else "completed"
                    event = f"workflow_execution_update_{how}"
                    self.outgoing.append(Command(event, given.protocol_instance_id, lang))
            case closing if closing in CLOSING:
                self.outgoing.append(Command(CLOSING[closing], "", lang))
            case other:
                raise NotImplementedError(f"the simulation does not know the command {other}")

    def _unsent(self, event: str, key: str) -> bool:
        """Takes back a command of this very task, if it is there."""
        for message in self.outgoing:
            if message.event == event and message.key == key:
                self.outgoing.remove(message)
                return True
        return False

    def _cancel_activity(self, seq: int, lang: WorkflowCommand) -> None:
        asked = self._activities.pop(seq, None)
        if asked is None:
            return
        if not self._unsent("activity_task_scheduled", asked.activity_id):
            if seq not in self._asked_to_end:
                self._asked_to_end.add(seq)
                self.outgoing.append(Command("activity_task_cancel_requested", str(self._began[seq]), lang))
            if asked.cancellation_type == ActivityCancellationType.WAIT_CANCELLATION_COMPLETED:
                self._activities[seq] = asked  # whatever it ends with is waited for
                return
        failure = self.wrapped(seq, asked, CANCELLED)
        failure.message = "Activity cancelled"
        self._jobs.append(resolved(seq, "cancelled", failure))

    def _cancel_child(self, seq: int, lang: WorkflowCommand) -> None:
        child = self._children.pop(seq, None)
        if child is None:
            return
        asked = child.start_child_workflow_execution
        job = WorkflowActivationJob()
        if self._unsent("start_child_workflow_execution_initiated", asked.workflow_id):
            job.resolve_child_workflow_execution_start.seq = seq
            job.resolve_child_workflow_execution_start.cancelled.failure.CopyFrom(CANCELLED)
        elif seq in self._started_children:
            self.outgoing.append(
                Command("request_cancel_external_workflow_execution_initiated", asked.workflow_id, lang)
            )
            info = ChildWorkflowExecutionFailureInfo()
            info.workflow_execution.workflow_id = asked.workflow_id
            info.workflow_type.name = asked.workflow_type
            failed = Failure(message="Child Workflow execution failed", child_workflow_execution_failure_info=info)
            failed.cause.CopyFrom(CANCELLED)
            job.resolve_child_workflow_execution.seq = seq
            job.resolve_child_workflow_execution.result.cancelled.failure.CopyFrom(failed)
        else:
            raise TaskFailure(f"it cancels {asked.workflow_id}, which it has asked for and which has not begun")
        self._jobs.append(job)

    def _cancel_signal(self, seq: int) -> None:
        """One that was sent is not called back: whoever waits for it goes on as it ends."""
        event = "signal_external_workflow_execution_initiated"
        for command in self.outgoing:
            if command.event == event and command.lang.signal_external_workflow_execution.seq == seq:
                self.outgoing.remove(command)
                job = WorkflowActivationJob()
                job.resolve_signal_external_workflow.seq = seq
                job.resolve_signal_external_workflow.failure.CopyFrom(CANCELLED)
                self._jobs.append(job)
                return

    def _run_local(self, seq: int, lang: WorkflowCommand) -> None:
        if self._replays:
            self._unmarked[seq] = lang
        else:
            self.locals[seq] = Local(seq, lang)

    def resolve_by_markers(self) -> bool:
        """In a replay, local activities end in the order of their markers, each in the activation that its marker
        names; or at once if there would be no other. Whether there is something to give to the workflow."""
        for held in (False, True):
            while not (held and self._jobs) and (first := next(iter(self._markers.items()), None)):
                seq, (data, _) = first
                if seq not in self._unmarked or (data["activation_index"] > self._activations and not held):
                    break
                self._replay_local(seq, self._unmarked.pop(seq))
        return bool(self._jobs)

    def _replay_local(self, seq: int, lang: WorkflowCommand) -> None:
        """It ended as its marker says."""
        data, marker = self._markers.pop(seq)
        self._time = Timestamp(**data["complete_time"])
        self.outgoing.append(Command("marker_recorded", f"{LOCAL} {seq}", lang))
        if data["backoff"]:
            backoff = DoBackoff(attempt=data["attempt"] + 1, backoff_duration=Duration(**data["backoff"]))
            backoff.original_schedule_time.CopyFrom(Timestamp(**data["original_schedule_time"]))
            self._jobs.append(resolved(seq, "backoff", backoff, is_local=True))
            return
        how, value = ("failed", marker.failure) if marker.HasField("failure") else ("completed", None)
        if value is None:
            value = marker.details["result"].payloads[0]
        elif value.HasField("canceled_failure_info"):
            how = "cancelled"
        self._jobs.append(resolved(seq, how, value, is_local=True))

    def _cancel_local(self, seq: int) -> None:
        if seq in self._unmarked:
            return  # it ends as its marker says
        local = self.locals.pop(seq, None)
        if local is None:
            return
        if local.task:
            local.task.cancel()
        self.mark(local, "cancelled", CANCELLED)
        self._jobs.append(resolved(seq, "cancelled", CANCELLED, is_local=True))

    def match(self, events: Iterable[HistoryEvent]) -> None:
        """Holds what the server wrote against what was sent."""
        for event in events:
            name = kind(event)
            if not is_command(event) or event.event_id <= self._matched:
                continue
            self._matched = event.event_id
            if not self._expected:
                raise Nondeterminism(f"event {event.event_id} {name} follows from nothing")
            key = _key(event)
            sent = self._sent_as(key)
            if sent.event != name or (key and key != sent.key):
                raise Nondeterminism(f"event {event.event_id} is {name} {key!r}, and not {sent.event} {sent.key!r}")
            self._learn(event, sent)

    def _sent_as(self, key: str) -> Command:
        """The next command. Markers of local activities are written when these end, and not when they began: they are
        found by themselves."""
        is_local = key.startswith(LOCAL)
        for one in self._expected:
            if (one.key == key) if is_local else not one.key.startswith(LOCAL):
                self._expected.remove(one)
                return one
        raise Nondeterminism(f"{key} follows from nothing")

    def _learn(self, event: HistoryEvent, sent: Command) -> None:
        match sent.event:
            case "activity_task_scheduled":
                seq = sent.lang.schedule_activity.seq
                self._began[seq] = event.event_id  # children are counted by themselves
            case "start_child_workflow_execution_initiated":
                seq = sent.lang.start_child_workflow_execution.seq
            case "signal_external_workflow_execution_initiated":
                self._seq_of[event.event_id] = sent.lang.signal_external_workflow_execution.seq
                return
            case _:
                return
        self._seq_of[event.event_id] = seq

    def mark(self, local: Local, how: str, value: Any) -> None:
        asked = local.asked.schedule_local_activity
        data = {"seq": local.seq, "attempt": 1, "activity_id": asked.activity_id, "activity_type": asked.activity_type}
        data |= {"complete_time": _json(self._time), "backoff": None, "original_schedule_time": None}
        data["activation_index"] = self._activations
        if how == "backoff":
            data |= {"attempt": value.attempt - 1, "backoff": _json(value.backoff_duration)}
            data["original_schedule_time"] = _json(value.original_schedule_time)
            value = BACKS_OFF
        marker = {"data": [Payload(metadata={"encoding": b"json/plain"}, data=json.dumps(data).encode())]}
        if how == "completed":
            marker["result"] = [value]
        self.outgoing.append(
            Command(
                "marker_recorded",
                f"{LOCAL} {local.seq}",
                local.asked,
                marker,
                None if how == "completed" else value,
            )
        )

    def wrapped(self, seq: int, asked: Any, cause: Failure, given: Any = None) -> Failure:
        info = ActivityFailureInfo(
            scheduled_event_id=self._began.get(seq, 0),
            started_event_id=getattr(given, "started_event_id", 0),
            activity_id=asked.activity_id,
            retry_state=getattr(given, "retry_state", 0),
        )
        info.activity_type.name = asked.activity_type
        words = "Activity task timed out" if cause.HasField("timeout_failure_info") else "Activity task failed"
        return Failure(message=words, activity_failure_info=info, cause=cause)


def _json(time: Timestamp | Duration) -> dict[str, int]:
    return {"seconds": time.seconds, "nanos": time.nanos}


def _key(event: HistoryEvent) -> str:
    given = attributes(event)
    match kind(event):
        case "activity_task_scheduled":
            return str(given.activity_id)
        case "activity_task_cancel_requested":
            return str(given.scheduled_event_id)
        case "timer_started" | "timer_canceled":
            return str(given.timer_id)
        case "marker_recorded" if given.marker_name == PATCH:
            return f"{PATCH} {json.loads(given.details['patch-data'].payloads[0].data)['id']}"
        case "marker_recorded":
            return f"{LOCAL} {json.loads(given.details['data'].payloads[0].data)['seq']}"
        case "start_child_workflow_execution_initiated":
            return str(given.workflow_id)
        case "workflow_execution_update_accepted":
            return str(given.protocol_instance_id)
        case "workflow_execution_update_completed":
            return str(given.meta.update_id)
        case _:
            return ""


def resolved(seq: int, how: str, value: Any, *, is_local: bool = False) -> WorkflowActivationJob:
    job = WorkflowActivationJob()
    job.resolve_activity.seq, job.resolve_activity.is_local = seq, is_local
    result = job.resolve_activity.result
    match how:
        case "completed":
            result.completed.result.CopyFrom(value)
        case "failed":
            result.failed.failure.CopyFrom(value)
        case "backoff":
            result.backoff.CopyFrom(value)
        case _:
            result.cancelled.failure.CopyFrom(value)
    return job
