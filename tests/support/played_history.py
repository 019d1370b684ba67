"""A conversation that is played without a server, with the history that a server would write of it: the workflow's own
state can be held against what readers make of that history, after each workflow task.

The workflow runs as on a worker: the simulation's stand-in for the SDK's core (tests/simulation/temporal/sdk_core.py)
makes activations of events, and commands of what the workflow answers. What comes, and what comes together in one
workflow task, a test says itself; tests/support/played_worlds.py draws it. If only the workflow matters,
tests/support/played_runs.py is simpler.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal

from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.common.v1 import Payload, Payloads
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.update.v1 import Outcome as UpdateOutcome
from temporalio.api.update.v1 import Request
from temporalio.exceptions import FailureError
from temporalio.exceptions import TimeoutError as TimedOut

from everturn import names
from everturn.history import steps
from everturn.history.reader import HistoryReader
from everturn.history.state_by_history import StateByHistory
from everturn.payloads import ModelReply, Start
from everturn.records import Message, Outcome
from everturn.state import State
from everturn.storage.data_converter import data_converter
from everturn.workflows.call_headers import CallHeaders
from tests.simulation.temporal.history import History
from tests.simulation.temporal.instances import at_once
from tests.simulation.temporal.sdk_commands import Command, TaskFailure
from tests.simulation.temporal.sdk_core import CachedRun
from tests.simulation.temporal.sequences import TaskEvents
from tests.support.agreement import OF_A_TURN_WITHOUT_EVENTS, Told, ends_in_a_turn_without_events, facts
from tests.support.payloads import payload_of, payloads_of, value_in
from tests.support.played_runs import BEGAN, RUN_ID, WORKFLOW_ID, failure_of

NEXT_RUN_ID = "00000000-0000-0000-0000-000000000002"
CHILD_RUN_ID = "00000000-0000-0000-0000-000000000003"

# ---------------------------------------------------------------- what a workflow task brings


@dataclass(frozen=True)
class BroughtEvent:
    """What comes as an event, before the workflow task begins."""

    kind: str
    """In the words of tests/simulation/temporal/history.py: `timer_fired` ..."""
    fields: Mapping[str, Any]
    label: str
    """For a person who reads what happened."""
    due: datetime | None = None
    """Of a timer that fires."""
    reply: ModelReply | None = None
    """That of a model turn that ends."""

    def __str__(self) -> str:
        return self.label


@dataclass(frozen=True)
class SentCommand:
    """What somebody sends. A signal becomes an event before the workflow task; an update is brought by the task, and
    becomes an event if it is accepted."""

    sent_as: Literal["signal", "update"]
    name: str
    payload: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.sent_as} {self.name} {dict(self.payload)}"


Arrival = BroughtEvent | SentCommand


def signal(name: str, **payload: Any) -> SentCommand:
    return SentCommand("signal", name, payload)


def update(name: str, **payload: Any) -> SentCommand:
    return SentCommand("update", name, payload)


# ---------------------------------------------------------------- what a conversation waits for


@dataclass(frozen=True)
class OpenActivity:
    """An activity that has no result yet, by the event that scheduled it."""

    event_id: int
    seq: int
    activity_type: str
    payload: Payload

    @property
    def input(self) -> Any:
        return value_in(self.payload)

    def completed(self, result: Any = None) -> BroughtEvent:
        output = payloads_of(result)
        brought = self._end("activity_task_completed", f"returns {result!r}", result=output)
        return replace(brought, reply=result) if isinstance(result, ModelReply) else brought

    def failed(self, cause: FailureError) -> BroughtEvent:
        """`cause`: that of the ActivityError which the workflow gets."""
        kind = "activity_task_timed_out" if isinstance(cause, TimedOut) else "activity_task_failed"
        return self._end(kind, f"fails with {cause!r}", failure=failure_of(cause))

    def cancelled(self) -> BroughtEvent:
        """It has ended as it was asked to."""
        return self._end("activity_task_canceled", "is cancelled")

    def _end(self, kind: str, label: str, **fields: Any) -> BroughtEvent:
        values = {"scheduled_event_id": self.event_id, **fields}
        return BroughtEvent(kind, values, f"{self.activity_type} {label}")


@dataclass(frozen=True)
class OpenChild:
    """Another agent's conversation that has no outcome yet, by the event that initiated it."""

    event_id: int
    seq: int
    workflow_id: str

    def started(self) -> BroughtEvent:
        return self._bring("child_workflow_execution_started", "begins")

    def completed(self, outcome: Outcome) -> BroughtEvent:
        result = payloads_of(outcome)
        return self._bring("child_workflow_execution_completed", f"ends with {outcome!r}", result=result)

    def failed(self, cause: FailureError) -> BroughtEvent:
        return self._bring("child_workflow_execution_failed", f"fails with {cause!r}", failure=failure_of(cause))

    def _bring(self, kind: str, label: str, **fields: Any) -> BroughtEvent:
        execution = {"workflow_id": self.workflow_id, "run_id": CHILD_RUN_ID}
        values = {"initiated_event_id": self.event_id, "workflow_execution": execution, **fields}
        return BroughtEvent(kind, values, f"child {self.workflow_id} {label}")


@dataclass(frozen=True)
class RunningTimer:
    event_id: int
    timer_id: str
    summary: str
    due: datetime

    def fired(self) -> BroughtEvent:
        values = {"timer_id": self.timer_id, "started_event_id": self.event_id}
        return BroughtEvent("timer_fired", values, f"timer {self.summary!r} fires", due=self.due)


@dataclass(frozen=True)
class SentSignal:
    """One to another workflow, which has not arrived yet."""

    event_id: int
    workflow_id: str

    def delivered(self) -> BroughtEvent:
        values = {"initiated_event_id": self.event_id, "workflow_execution": {"workflow_id": self.workflow_id}}
        return BroughtEvent("external_workflow_execution_signaled", values, f"signal to {self.workflow_id} arrives")


# ---------------------------------------------------------------- the conversation and its history


class PlayedHistory:
    """One run of a conversation. It has not begun before its first task. Each workflow task is a second after the one
    before."""

    def __init__(self, start: Start, *, continued: str = "", now: datetime = BEGAN) -> None:
        """`continued`: the id of the run before."""
        self.activities: list[OpenActivity] = []
        self.children: list[OpenChild] = []
        self.timers: list[RunningTimer] = []
        self.signals: list[SentSignal] = []
        self.outcome: Outcome | None = None
        """None if it has not ended."""
        self.next_start: Start | None = None
        """What the next run begins with; None if this one goes on."""
        self.suggested = False
        """The server suggests that the conversation goes on as a new run."""
        self.refusals: list[str] = []
        """Why updates of the last task were rejected."""
        self.by_history = StateByHistory()
        """What is read off the history."""
        self.steps: list[steps.Step] = []
        """The history's, so far."""
        self._told = Told()
        self._passed_over: set[str] = set()
        self._reader = HistoryReader(data_converter)
        self._events = _PlayedEvents(now)
        self._run = _PlayedRun(RUN_ID, interceptors=[CallHeaders])
        self._evict = weakref.finalize(self, self._run.evict)
        self._evict.atexit = False
        self._requests: dict[str, _AcceptedUpdate] = {}
        self._written = 0  # when the last workflow task began
        self._write(
            "workflow_execution_started",
            input=payloads_of(start),
            workflow_id=WORKFLOW_ID,
            workflow_type={"name": names.CONVERSATION},
            task_queue={"name": "queue"},
            original_execution_run_id=RUN_ID,
            first_execution_run_id=RUN_ID,
            continued_execution_run_id=continued,
        )

    # ------------------------------------------------------------ what happens

    def take_task(self, *arrivals: Arrival) -> None:
        """A workflow task that brings these, in the order of Temporal: signals, then updates, then what activities,
        children and timers brought. Raises TaskFailure, and whatever a reader raises."""
        self.pass_time(1)
        brought = [arrival for arrival in arrivals if isinstance(arrival, BroughtEvent)]
        self._events.now = max([self._events.now, *(event.due for event in brought if event.due)])
        updates = []
        for arrival in arrivals:
            match arrival:
                case BroughtEvent(kind=kind, fields=fields):
                    self._write(kind, **fields)
                case SentCommand(sent_as="signal", name=name, payload=payload):
                    given = payloads_of(dict(payload))
                    self._write("workflow_execution_signaled", signal_name=name, input=given)
                case SentCommand():
                    updates.append(self._request_of(arrival))
        self._write("workflow_task_scheduled")
        started = self._write("workflow_task_started", suggest_continue_as_new=self.suggested)
        events = tuple(self._events.events[self._written :])
        self._written = len(self._events.events)
        self._run.begin_task(TaskEvents(events, started, (), last=True), updates)
        if self._run.locals:
            raise NotImplementedError("local activities are not played")
        self.refusals = [refusal.message for _, refusal in self._run.rejected]
        self._write(
            "workflow_task_completed", scheduled_event_id=started.event_id - 1, started_event_id=started.event_id
        )
        for command in self._run.finished():
            self._write_command(command)
        self._run.match(self._events.events[self._written :])
        self._forget_what_ended(brought)

    def pass_time(self, seconds: float) -> None:
        self._events.now += timedelta(seconds=seconds)

    def begin_next_run(self) -> PlayedHistory:
        """The run that continues this one."""
        assert self.next_start is not None
        return PlayedHistory(self.next_start, continued=RUN_ID, now=self._events.now)

    def find_activity(self, activity_type: str) -> OpenActivity:
        """The first of this type that has no result."""
        return next(activity for activity in self.activities if activity.activity_type == activity_type)

    def is_being_cancelled(self, activity: OpenActivity) -> bool:
        return self._run.is_asked_to_end(activity)

    def has_started(self, child: OpenChild) -> bool:
        return self._run.has_started(child)

    # ------------------------------------------------------------ what it has come to

    @property
    def has_begun(self) -> bool:
        return self._run.instance is not None

    @property
    def state(self) -> State:
        """As the workflow has it."""
        return self._run.state  # type: ignore[no-any-return]

    def find_differences(self) -> dict[str, Any]:
        """What the workflow has, and what its history and its events say, by what they differ in. Empty: they agree."""
        held, read = facts(self.state), facts(self.by_history.state)
        differences = {name: (held[name], read[name]) for name in held if held[name] != read[name]}
        differences = {name: both for name, both in differences.items() if name not in self._passed_over}
        return differences | self._told.differences(self.by_history.state)

    def find_transcript_differences(self) -> list[tuple[Any, Any]]:
        """The messages that the model has seen or said, as the conversation answers who asks for its transcript, and as
        the fold over its history has them: those that differ. Empty: they agree."""
        arguments = {"from": 0, "limit": 1_000}
        page = value_in(self._run.query(names.TRANSCRIPT, [payload_of(arguments)]).succeeded.response)
        transcript, end = self.by_history.transcript, self.state.prefix.position
        begin = max(page["from"], transcript.base)
        held = [Message.model_validate(message) for message in page["messages"]][
            begin - page["from"] : end - page["from"]
        ]
        read = transcript.messages[begin - transcript.base : end - transcript.base]
        if len(held) != len(read):
            return [(f"{len(held)} messages", f"{len(read)} messages")]
        return [both for both in zip(map(_words_of, held), map(_words_of, read), strict=True) if both[0] != both[1]]

    # ------------------------------------------------------------ the history

    def _write(self, kind: str, *, beside: dict[str, Any] | None = None, **fields: Any) -> HistoryEvent:
        event = self._events.add(kind, beside=beside, **fields)
        step = at_once(self._reader.read_event(event))
        if ends_in_a_turn_without_events(step, self.by_history.state):
            self._passed_over = OF_A_TURN_WITHOUT_EVENTS
        self.by_history.take_step(step)
        self._told.take(step)
        self.steps.append(step)
        return event

    def _write_command(self, command: Command) -> None:
        """The event that a server makes of it."""
        lang: Any = getattr(command.lang, command.lang.WhichOneof("variant") or "")
        fields: dict[str, Any] = {}
        beside = {"user_metadata": command.lang.user_metadata} if command.lang.HasField("user_metadata") else {}
        match command.event:
            case "activity_task_scheduled":
                fields = {
                    "activity_id": lang.activity_id,
                    "activity_type": {"name": lang.activity_type},
                    "input": Payloads(payloads=lang.arguments),
                    "header": {"fields": dict(lang.headers)},
                    "task_queue": {"name": lang.task_queue},
                    "schedule_to_start_timeout": lang.schedule_to_start_timeout,
                }
            case "activity_task_cancel_requested":
                fields = {"scheduled_event_id": int(command.key)}
            case "timer_started":
                fields = {"timer_id": command.key, "start_to_fire_timeout": lang.start_to_fire_timeout}
            case "timer_canceled":
                fields = {"timer_id": command.key}
            case "marker_recorded":
                details = {key: Payloads(payloads=payloads) for key, payloads in command.marker.items()}
                fields = {"marker_name": command.key.partition(" ")[0], "details": details}
            case "upsert_workflow_search_attributes":
                fields = {"search_attributes": lang.search_attributes}
            case "workflow_properties_modified":
                fields = {"upserted_memo": lang.upserted_memo}
            case "start_child_workflow_execution_initiated":
                fields = {
                    "workflow_id": lang.workflow_id,
                    "workflow_type": {"name": lang.workflow_type},
                    "input": Payloads(payloads=lang.input),
                }
            case "request_cancel_external_workflow_execution_initiated":
                fields = {"workflow_execution": {"workflow_id": command.key}}
            case "signal_external_workflow_execution_initiated":
                workflow_id = lang.child_workflow_id or lang.workflow_execution.workflow_id
                fields = {
                    "workflow_execution": {"workflow_id": workflow_id},
                    "signal_name": lang.signal_name,
                    "input": Payloads(payloads=lang.args),
                }
            case "workflow_execution_update_accepted":
                request = self._requests[command.key].request
                fields = {"protocol_instance_id": command.key, "accepted_request": request}
            case "workflow_execution_update_completed":
                accepted = self._requests[command.key]
                fields = {
                    "meta": accepted.request.meta,
                    "accepted_event_id": accepted.event_id,
                    "outcome": UpdateOutcome(success=payloads_of(lang.completed)),
                }
            case "workflow_execution_completed":
                self.outcome = Outcome.model_validate(value_in(lang.result))
                fields = {"result": payloads_of(lang.result)}
            case "workflow_execution_continued_as_new":
                self.next_start = Start.model_validate(value_in(lang.arguments[0]))
                fields = {"new_execution_run_id": NEXT_RUN_ID, "input": Payloads(payloads=lang.arguments)}
            case other:
                raise TaskFailure(f"it ends with {other}: {lang}")
        self._note_command(command, self._write(command.event, beside=beside, **fields))

    def _note_command(self, command: Command, event: HistoryEvent) -> None:
        """What the conversation waits for from now on."""
        lang: Any = getattr(command.lang, command.lang.WhichOneof("variant") or "")
        match command.event:
            case "activity_task_scheduled":
                payload = lang.arguments[0] if lang.arguments else Payload()
                self.activities.append(OpenActivity(event.event_id, lang.seq, lang.activity_type, payload))
            case "start_child_workflow_execution_initiated":
                self.children.append(OpenChild(event.event_id, lang.seq, lang.workflow_id))
            case "timer_started":
                summary = command.lang.user_metadata.summary
                words = str(value_in(summary)) if summary.data else ""
                due = self._events.now + lang.start_to_fire_timeout.ToTimedelta()
                self.timers.append(RunningTimer(event.event_id, command.key, words, due))
            case "timer_canceled":
                self.timers = [timer for timer in self.timers if timer.timer_id != command.key]
            case "signal_external_workflow_execution_initiated":
                workflow_id = lang.child_workflow_id or lang.workflow_execution.workflow_id
                self.signals.append(SentSignal(event.event_id, workflow_id))
            case "workflow_execution_update_accepted":
                self._requests[command.key].event_id = event.event_id
            case _:
                pass

    def _forget_what_ended(self, brought: Iterable[BroughtEvent]) -> None:
        fired = {event.fields.get("timer_id") for event in brought}
        delivered = {event.fields.get("initiated_event_id") for event in brought}
        self.timers = [timer for timer in self.timers if timer.timer_id not in fired]
        self.signals = [sent for sent in self.signals if sent.event_id not in delivered]
        self.activities = [activity for activity in self.activities if self._run.awaits_activity(activity)]
        self.children = [child for child in self.children if self._run.awaits_child(child)]

    def _request_of(self, command: SentCommand) -> Request:
        update_id = f"update-{len(self._requests) + 1}"
        arguments = payloads_of(dict(command.payload))
        request = Request(meta={"update_id": update_id}, input={"name": command.name, "args": arguments})  # type: ignore[arg-type]
        self._requests[update_id] = _AcceptedUpdate(request)
        return request


@dataclass
class _AcceptedUpdate:
    """Or one that was rejected: then it has no event."""

    request: Request
    event_id: int = 0


class _PlayedEvents(History):
    """Their time is the test's."""

    def __init__(self, now: datetime) -> None:
        super().__init__()
        self.now = now

    def _stamp(self, name: str) -> Timestamp:
        stamp = Timestamp()
        stamp.FromDatetime(self.now)
        return stamp


class _PlayedRun(CachedRun):
    """As a worker that lives on has it in memory."""

    def begin_task(self, task: TaskEvents, updates: list[Request]) -> None:
        if self.instance is None:
            asyncio.run(self._begin_in_loop(task, updates))
        else:
            self.begin(task, updates)

    async def _begin_in_loop(self, task: TaskEvents, updates: list[Request]) -> None:
        """An instance is made in a loop that runs, other than its own."""
        self.begin(task, updates)

    def awaits_activity(self, activity: OpenActivity) -> bool:
        return activity.seq in self._activities

    def is_asked_to_end(self, activity: OpenActivity) -> bool:
        return activity.seq in self._asked_to_end

    def awaits_child(self, child: OpenChild) -> bool:
        return child.seq in self._children

    def has_started(self, child: OpenChild) -> bool:
        return child.seq in self._started_children


def _words_of(message: Message) -> tuple[Any, ...]:
    """What is compared of a message: not how a provider, or a deploy, puts it."""
    results = [(result.call_id, result.text) for result in message.tool_results]
    return message.role, message.summary, message.cut_short, message.text, results
