"""A conversation's event history, read as steps.

One reader, three uses: a worker that lacks a conversation's prefix, live events for clients, and export. It needs no
worker, no query and no second store.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from temporalio.api.common.v1 import Payloads
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.update.v1 import Request
from temporalio.client import Client
from temporalio.converter import DataConverter
from temporalio.service import RPCError

from everturn import names
from everturn.batching.records import BatchNotice
from everturn.calls import gate, pending_calls
from everturn.calls.causes import read_cause
from everturn.calls.unreadable_inputs import (
    DEPLOY_ITS_CODE,
    SEND_AGAIN,
    STALLED_BY_SIGNALS,
    UNREADABLE_START,
    signals_problem,
    start_problem,
)
from everturn.carryover import PackedTranscript
from everturn.errors import InvalidSetting
from everturn.history import event_types
from everturn.history.activity_reader import NEXUS_EVENTS, ActivityReader
from everturn.history.decoding import COMMANDS, UNREADABLE, Decoder, check_kind
from everturn.history.long_poll import has_long_poll
from everturn.history.steps import (
    BatchTold,
    CallExpired,
    CancelRequested,
    CommandSent,
    DecisionChecked,
    InputUnreadable,
    MessageSent,
    PrefixExtended,
    QueuedCallDenied,
    ReminderFired,
    RunClosed,
    RunStarted,
    Step,
    ToolCompleted,
    ToolRunFailed,
    ToolScheduled,
    TranscriptKept,
    TurnCancelled,
    TurnCompleted,
    TurnFailed,
    TurnScheduled,
    WorkflowTaskCompleted,
)
from everturn.payloads import DecisionCheck, MessageIn, ModelReply, ModelRequest, Start, ToolRequest
from everturn.records import Decision, Outcome, ToolResult
from everturn.storage.composed_converter import own_converter
from everturn.storage.unreadable import strict
from everturn.subagents.results import result_of
from everturn.temporal.temporal_errors import RECONNECT_SECONDS, history_moved, will_pass

PATCH: Final = "core_patch"
"""The name that the SDK gives the marker of `workflow.patched`."""

_TIMER_KINDS = (names.REMINDER, names.EXPIRY, names.NOT_BEGUN)

_TRANSIENT = (event_types.WORKFLOW_TASK_SCHEDULED, event_types.WORKFLOW_TASK_STARTED)


class HistoryReader:
    """Turns one run's events into steps. Feed it every event from the first on, in order."""

    def __init__(self, converter: DataConverter) -> None:
        self._converter = converter
        self._decoder = Decoder(converter)
        self._turns: dict[int, ModelRequest] = {}
        self._cancelled: set[int] = set()
        """Those of them that the conversation has cancelled."""
        self._tools: dict[int, tuple[str, ToolRequest]] = {}
        self._activities = ActivityReader(converter)
        self._checks: dict[int, DecisionCheck] = {}
        self._patches = PatchReader()
        self._timers = TimerReader(converter, self._activities)
        self._keeping: set[int] = set()
        self._extending: dict[int, ModelRequest] = {}
        self._attempts: dict[int, int] = {}
        self._admitted: dict[str, Request] = {}
        """Ids of the updates that a reset applied again and that the conversation has not accepted yet."""
        self._clock = 0.0
        """The conversation's, in its last workflow task."""
        self._turn = 0
        """The last one that has a reply."""
        self._agents: dict[str, int] = {}
        """The agents' conversations that were begun, by id."""
        self._id = ""
        """The conversation's."""

    async def read_event(self, event: HistoryEvent) -> Step:
        """The step for this event."""
        time = event.event_time.ToDatetime(tzinfo=UTC)
        return await self._read_step(event, time) or Step(event.event_id, time)

    async def _read_step(self, event: HistoryEvent, time: datetime) -> Step | None:
        match event.event_type:
            case event_types.WORKFLOW_EXECUTION_STARTED:
                started = event.workflow_execution_started_event_attributes
                check_kind(started.workflow_id, started.workflow_type.name)
                self._id = started.workflow_id
                start = await self._decoder.read_record(started.input, Start)
                self._patches.start_problem = ""
                if start is None:
                    self._patches.start_problem = await self._decoder.find_problem(started.input, Start)
                    start = Start.model_construct(agent="")
                self._turn = start.carry.turn if start.carry else 0
                if start.carry and start.carry.open:
                    self._timers.expect_calls(call.call_id for call in start.carry.open.calls)
                return RunStarted(event.event_id, time, start, started.continued_execution_run_id)
            case event_types.WORKFLOW_EXECUTION_SIGNALED:
                signal = event.workflow_execution_signaled_event_attributes
                self._patches.note_signal(signal.signal_name)
                return await self._read_command(event.event_id, time, signal.signal_name, signal.input, accepted=False)
            case event_types.WORKFLOW_EXECUTION_UPDATE_ACCEPTED:
                accepted = event.workflow_execution_update_accepted_event_attributes
                request = self._admitted.pop(accepted.protocol_instance_id, accepted.accepted_request)
                return await self._read_command(
                    event.event_id, time, request.input.name, request.input.args, accepted=True
                )
            case event_types.WORKFLOW_EXECUTION_UPDATE_ADMITTED:
                # After a reset: Temporal applies the updates of before again, and writes each only here.
                admitted = event.workflow_execution_update_admitted_event_attributes.request
                self._admitted[admitted.meta.update_id] = admitted
            case event_types.WORKFLOW_EXECUTION_CANCEL_REQUESTED:
                return CancelRequested(event.event_id, time)
            case event_types.WORKFLOW_TASK_STARTED:
                self._clock = event.event_time.ToNanoseconds() / 1e9  # as workflow.time() has it
            case event_types.WORKFLOW_TASK_COMPLETED:
                return WorkflowTaskCompleted(event.event_id, time, self._clock)
            case event_types.ACTIVITY_TASK_SCHEDULED:
                return await self._read_scheduled(event, time)
            case event_types.ACTIVITY_TASK_STARTED:
                # Comes with the activity's end: a retry writes nothing.
                begun = event.activity_task_started_event_attributes
                self._attempts[begun.scheduled_event_id] = begun.attempt
                return None
            case event_types.ACTIVITY_TASK_COMPLETED:
                return await self._read_completed(event, time)
            case event_types.ACTIVITY_TASK_FAILED:
                failed = event.activity_task_failed_event_attributes
                return await self._read_failed(event.event_id, time, failed.scheduled_event_id, failed.failure)
            case event_types.ACTIVITY_TASK_TIMED_OUT:
                late = event.activity_task_timed_out_event_attributes
                return await self._read_failed(event.event_id, time, late.scheduled_event_id, late.failure)
            case event_types.MARKER_RECORDED if event.marker_recorded_event_attributes.marker_name == PATCH:
                return self._patches.read_patch_marker(event, time)
            case event_types.MARKER_RECORDED:
                return await self._read_local(event, time)
            case event_types.TIMER_STARTED:
                await self._timers.note_timer_started(event)
            case event_types.TIMER_FIRED:
                return self._timers.read_timer_fired(event, time)
            case event_types.START_CHILD_WORKFLOW_EXECUTION_INITIATED:
                return await self._agent_asked(event, time)
            case event_types.ACTIVITY_TASK_CANCEL_REQUESTED:
                # The conversation has gone on without it, and what it may still bring is none of its transcript. For a
                # model turn it waits: that hands over what it has said.
                scheduled_id = event.activity_task_cancel_requested_event_attributes.scheduled_event_id
                if scheduled_id in self._turns:
                    self._cancelled.add(scheduled_id)
                else:
                    self._forget(scheduled_id)
            case event_types.ACTIVITY_TASK_CANCELED:
                ended = event.activity_task_canceled_event_attributes.scheduled_event_id
                turn = self._turns.pop(ended, None)
                if turn:
                    return TurnCancelled(event.event_id, time, turn)
            case event_types.REQUEST_CANCEL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED:
                cancelled = event.request_cancel_external_workflow_execution_initiated_event_attributes
                self._forget(self._agents.get(cancelled.workflow_execution.workflow_id, 0))
            case event_types.CHILD_WORKFLOW_EXECUTION_COMPLETED:
                return await self._agent_answered(event, time)
            case operation if operation in NEXUS_EVENTS:
                return await self._activities.read_operation(event, time)
            case unanswered if unanswered in event_types.UNANSWERED:
                attributes, cause = event_types.UNANSWERED[unanswered]
                tool = self._tools.pop(getattr(event, attributes).initiated_event_id, None)
                if tool:
                    return ToolRunFailed(event.event_id, time, *tool, cause, "")
            case _:
                return await self._read_end(event, time)
        return None

    def _forget(self, scheduled_id: int) -> None:
        for unfinished in (self._turns, self._tools, self._extending, self._checks):
            unfinished.pop(scheduled_id, None)
        self._activities.forget(scheduled_id)

    async def _read_command(
        self, event_id: int, time: datetime, name: str, payloads: Payloads, *, accepted: bool
    ) -> Step | None:
        try:
            return await self._read_sent(event_id, time, name, payloads, accepted=accepted)
        except InvalidSetting:
            # Nobody may have stored it. If somebody did, what the conversation made of it is as large, and said so.
            return None

    async def _read_sent(
        self, event_id: int, time: datetime, name: str, payloads: Payloads, *, accepted: bool
    ) -> Step | None:
        if len(payloads.payloads) > 1:
            return None
        if name == names.MESSAGE:
            message = await self._decoder.read_record(payloads, MessageIn)
            if message is None or not (message.text or message.parts):
                return None
            return MessageSent(event_id, time, message, accepted)
        if name == names.BATCH:
            notice = await self._decoder.read_record(payloads, BatchNotice)
            return BatchTold(event_id, time, notice) if notice else None
        record = COMMANDS.get(name)
        if record is None:
            return None
        try:
            values = await self._decoder.decode(payloads, None)
            payload = values[0] if values and values[0] is not None else {}
            record.model_validate(payload)
        except UNREADABLE:
            return None  # as the conversation itself passed over it
        return CommandSent(event_id, time, name, payload, accepted)

    async def _read_scheduled(self, event: HistoryEvent, time: datetime) -> Step | None:
        scheduled = event.activity_task_scheduled_event_attributes
        is_theirs, step = await self._activities.take_scheduled(event.event_id, time, scheduled)
        if is_theirs:
            return step
        if scheduled.activity_type.name == names.CALL_MODEL:
            if request := await self._decoder.read_record(scheduled.input, ModelRequest):
                self._turns[event.event_id] = request
                return TurnScheduled(event.event_id, time, request, scheduled.activity_id)
        elif scheduled.activity_type.name == names.KEEP_TRANSCRIPT:
            self._keeping.add(event.event_id)
        elif scheduled.activity_type.name == names.EXTEND_PREFIX:
            if request := await self._decoder.read_record(scheduled.input, ModelRequest):
                self._extending[event.event_id] = request
        elif scheduled.activity_type.name == names.CHECK_DECISION:
            if check := await self._decoder.read_record(scheduled.input, DecisionCheck):
                self._checks[event.event_id] = check
        elif tool_request := await self._decoder.read_record(scheduled.input, ToolRequest):
            tool = tool_request.tool or scheduled.activity_type.name
            self._tools[event.event_id] = (tool, tool_request)
            return ToolScheduled(event.event_id, time, tool, tool_request, scheduled.activity_id)
        return None

    async def _read_completed(self, event: HistoryEvent, time: datetime) -> Step | None:
        completed = event.activity_task_completed_event_attributes
        if turn := self._turns.pop(completed.scheduled_event_id, None):
            reply, problem = await self._decoder.try_to_read(completed.result, ModelReply)
            attempt = self._attempts.pop(completed.scheduled_event_id, 1)
            if reply is None:
                if completed.scheduled_event_id in self._cancelled:
                    return TurnCancelled(event.event_id, time, turn)
                problem = f"The reply of turn {turn.turn} can't be read: {problem}"
                return TurnFailed(event.event_id, time, turn, problem, pending_calls.READ_AGAIN)
            self._turn = turn.turn
            self._timers.expect_calls(call.call_id for call in reply.message.tool_calls)
            return TurnCompleted(event.event_id, time, turn, reply, attempt)
        if extension := self._extending.pop(completed.scheduled_event_id, None):
            return PrefixExtended(event.event_id, time, extension, await self._decoder.read_text(completed.result))
        if completed.scheduled_event_id in self._keeping:
            packed = await self._decoder.read_record(completed.result, PackedTranscript)
            return TranscriptKept(event.event_id, time, packed) if packed else None
        if check := self._checks.pop(completed.scheduled_event_id, None):
            refusal, problem = await self._decoder.try_to_read(completed.result, str)
            if refusal is None:
                refusal = f"The policy's decision can't be read: {problem}"
            return DecisionChecked(event.event_id, time, check, refusal)
        if tool := self._tools.pop(completed.scheduled_event_id, None):
            name, request = tool
            result, problem = await self._decoder.try_to_read(completed.result, ToolResult)
            if result and result.call_id == request.call_id:
                return ToolCompleted(event.event_id, time, name, request, result)
            cause = f"The result of {name} can't be read: {problem}"
            if result:
                cause = f"The result of {name} belongs to another call, {result.call_id!r:.150}"
            return ToolRunFailed(event.event_id, time, name, request, cause, names.UNREADABLE_RESULT)
        return await self._activities.take_completed(
            event.event_id, time, completed.scheduled_event_id, completed.result
        )

    async def _read_failed(self, event_id: int, time: datetime, scheduled_id: int, failure: Failure) -> Step | None:
        failure_cause = await read_cause(self._converter, failure)
        if turn := self._turns.pop(scheduled_id, None):
            if scheduled_id in self._cancelled:
                return TurnCancelled(event_id, time, turn, failure_cause.said)
            batch = failure_cause.batch_turn
            awaited = batch is not None or (failure_cause.not_hosted and turn.hand_back_for is None)
            passing = awaited or (failure_cause.too_long and not turn.summarise)
            failed_turn = TurnFailed(
                event_id, time, turn, failure_cause.cause, failure_cause.cure, failure_cause.fallback, passing, awaited
            )
            return replace(failed_turn, batch=batch) if batch else failed_turn
        tool = self._tools.pop(scheduled_id, None)
        if check := self._checks.pop(scheduled_id, None):
            if not failure_cause.not_hosted:
                return DecisionChecked(event_id, time, check, gate.not_asked(failure_cause.cause))
            call = check.model_dump(include={"agent", "turn", "hand_back_for"}) | {"call_id": check.call.call_id}
            tool = (names.CHECK_DECISION, ToolRequest(**call))
        if tool:
            awaited = failure_cause.not_hosted and tool[1].hand_back_for is None
            stalled = failure_cause.not_hosted and not awaited
            failed = ToolRunFailed(
                event_id,
                time,
                *tool,
                failure_cause.cause,
                failure_cause.kind,
                failure_cause.cure,
                awaited,
                stalled,
                failure_cause.left,
            )
            return replace(failed, proposed=failure_cause.proposed) if failure_cause.proposed else failed
        return await self._activities.take_failed(event_id, time, scheduled_id, failure)

    async def _read_local(self, event: HistoryEvent, time: datetime) -> Step | None:
        """A tool that ran as a local activity. Its only event is a marker."""
        marker = event.marker_recorded_event_attributes
        if marker.HasField("failure"):
            failure_cause = await read_cause(self._converter, marker.failure)
            if not failure_cause.call_id:
                return None
            decision = Decision.model_validate(failure_cause.decision) if failure_cause.decision else None
            request = ToolRequest(agent="", turn=self._turn, call_id=failure_cause.call_id, decision=decision)
            return ToolRunFailed(
                event.event_id,
                time,
                failure_cause.tool,
                request,
                failure_cause.cause,
                failure_cause.kind,
                local=True,
                left=failure_cause.left,
                proposed=failure_cause.proposed,
            )
        if "result" not in marker.details:
            return None
        result = await self._decoder.read_record(marker.details["result"], ToolResult)
        if result is None:
            return None
        request = ToolRequest(agent="", turn=self._turn, call_id=result.call_id)
        return ToolCompleted(event.event_id, time, result.name, request, result, local=True)

    async def _agent_asked(self, event: HistoryEvent, time: datetime) -> Step | None:
        child = event.start_child_workflow_execution_initiated_event_attributes
        start = await self._decoder.read_record(child.input, Start)
        if start is None or start.caller is None:
            return None
        request = ToolRequest(agent=start.agent, turn=start.caller.turn, call_id=start.caller.call_id)
        self._tools[event.event_id] = (start.agent, request)
        self._agents[child.workflow_id] = event.event_id
        return ToolScheduled(event.event_id, time, start.agent, request, conversation_id=child.workflow_id)

    async def _agent_answered(self, event: HistoryEvent, time: datetime) -> Step | None:
        completed = event.child_workflow_execution_completed_event_attributes
        tool = self._tools.pop(completed.initiated_event_id, None)
        outcome, problem = await self._decoder.try_to_read(completed.result, Outcome)
        if tool is None:
            return None
        agent, request = tool
        outcome = outcome and outcome.model_copy(update={"id": completed.workflow_execution.workflow_id})
        if outcome is None:
            cause = f"The outcome of {agent}'s conversation can't be read: {problem}"
            return ToolRunFailed(event.event_id, time, agent, request, cause, names.UNREADABLE_RESULT)
        return ToolCompleted(event.event_id, time, agent, request, result_of(request.call_id, agent, outcome), outcome)

    async def _read_end(self, event: HistoryEvent, time: datetime) -> Step | None:
        match event.event_type:
            case event_types.WORKFLOW_EXECUTION_COMPLETED:
                completed = event.workflow_execution_completed_event_attributes
                outcome = await self._decoder.read_record(completed.result, Outcome)
                # The workflow doesn't write its own id, which whoever reads its result knows.
                return RunClosed(event.event_id, time, outcome and outcome.model_copy(update={"id": self._id}))
            case event_types.WORKFLOW_EXECUTION_FAILED:
                failure = event.workflow_execution_failed_event_attributes.failure
                return RunClosed(event.event_id, time, None, (await read_cause(self._converter, failure)).cause)
            case event_types.WORKFLOW_EXECUTION_CONTINUED_AS_NEW:
                run_id = event.workflow_execution_continued_as_new_event_attributes.new_execution_run_id
                return RunClosed(event.event_id, time, None, next_run_id=run_id)
            case event_types.WORKFLOW_EXECUTION_TERMINATED:
                reason = event.workflow_execution_terminated_event_attributes.reason
                return RunClosed(event.event_id, time, None, f"it was terminated: {reason or 'no reason given'}")
            case event_types.WORKFLOW_EXECUTION_CANCELED:
                return RunClosed(event.event_id, time, None, "it was cancelled")
            case event_types.WORKFLOW_EXECUTION_TIMED_OUT:
                return RunClosed(event.event_id, time, None, "it reached its workflow timeout")
            case _:
                return None


class PatchReader:
    """What the conversation could not read, and which call a new rule denied. It writes both down by patches,
    which have no words."""

    def __init__(self) -> None:
        self.start_problem = ""
        """Why the run's start can't be read here."""
        self._signals: list[str] = []
        """The names of the signals so far that the conversation takes, which has numbered them."""

    def note_signal(self, name: str) -> None:
        if name == names.MESSAGE or name in COMMANDS:
            self._signals.append(name)

    def read_patch_marker(self, marker: HistoryEvent, time: datetime) -> InputUnreadable | QueuedCallDenied | None:
        """Of a marker with the name PATCH."""
        data = marker.marker_recorded_event_attributes.details["patch-data"].payloads
        patch = str(json.loads(data[0].data).get("id")) if data else ""
        if patch == UNREADABLE_START:
            return InputUnreadable(
                marker.event_id, time, start_problem(self.start_problem), DEPLOY_ITS_CODE, start=True
            )
        if patch.startswith(STALLED_BY_SIGNALS):
            numbers = map(int, patch.removeprefix(STALLED_BY_SIGNALS).split(","))
            problem = signals_problem([self._signals[number - 1] for number in numbers], "")
            return InputUnreadable(marker.event_id, time, problem, SEND_AGAIN)
        if patch.startswith(gate.DENIED_SINCE):
            return QueuedCallDenied(marker.event_id, time, patch.removeprefix(gate.DENIED_SINCE))
        return None


@dataclass(frozen=True)
class _Timer:
    kind: str
    call_id: str
    length: timedelta


class TimerReader:
    """Reads the timers of calls: a reminder, an expiry, and a Nexus operation that nobody begins.

    Temporal keeps nothing of a timer but its length and its summary, which is also what people read."""

    def __init__(self, converter: DataConverter, activities: ActivityReader) -> None:
        self._converter = converter
        self._activities = activities
        self._expected: dict[str, tuple[str, str]] = {}
        """What a timer of these calls is about, by its whole summary: that of another timer, which a user's interceptor
        started, may begin with the same words."""
        self._running: dict[int, _Timer] = {}

    def expect_calls(self, call_ids: Iterable[str]) -> None:
        """The calls of a reply: each may get timers."""
        self._expected |= {f"{kind}{call_id}": (kind, call_id) for call_id in call_ids for kind in _TIMER_KINDS}

    async def note_timer_started(self, event: HistoryEvent) -> None:
        if not event.user_metadata.HasField("summary"):
            return
        (summary,) = await self._converter.decode([event.user_metadata.summary])
        if about := self._expected.get(str(summary)):
            length = event.timer_started_event_attributes.start_to_fire_timeout.ToTimedelta()
            self._running[event.event_id] = _Timer(*about, length)

    def read_timer_fired(self, event: HistoryEvent, time: datetime) -> Step | None:
        timer = self._running.pop(event.timer_fired_event_attributes.started_event_id, None)
        match timer:
            case _Timer(kind=names.REMINDER):
                return ReminderFired(event.event_id, time, timer.call_id)
            case _Timer(kind=names.EXPIRY):
                return CallExpired(event.event_id, time, timer.call_id)
            case _Timer():
                return self._activities.not_begun(event.event_id, time, timer.call_id, timer.length)
            case None:
                return None


class Bookmark:
    """How far a run's history was read, so that a later read can go on from there."""

    last = 0
    """The event that was read last."""
    token: bytes | None = None
    """The token of the page that holds the next event; None for the first page."""

    def go_past(self, event: HistoryEvent, pages: Any) -> None:
        # A long poll shows workflow tasks that are not in the history yet: their ids are used again.
        if event.event_type not in _TRANSIENT:
            self.last = event.event_id
        # An interceptor of the application's may have put its own iterator in place of the pages.
        if (token := getattr(pages, "next_page_token", None)) and pages.current_page_index >= len(pages.current_page):
            self.token = token


class RunReading:
    """Of one run: what its events were read as, and up to which event."""

    def __init__(self, client: Client) -> None:
        self.reader = HistoryReader(own_converter(strict(client.data_converter)))
        self.mark = Bookmark()


async def read_steps(
    client: Client,
    conversation_id: str,
    *,
    run_id: str | None = None,
    follow: bool = False,
    reading: RunReading | None = None,
) -> AsyncIterator[Step]:
    """The steps of a run, one for each event, from the first one on, or after what `reading` has read. With `follow`,
    it goes on with new events until the run is over, through restarts of the server, even if they move the history."""
    reading = reading or RunReading(client)
    closed = False
    waits = follow and await has_long_poll(client)
    resumes = reading.mark.token is not None
    while True:
        handle = client.get_workflow_handle(conversation_id, run_id=run_id)
        try:
            pages = handle.fetch_history_events(
                wait_new_event=waits, next_page_token=reading.mark.token if resumes else None
            )
            async for event in pages:
                if event.event_id > reading.mark.last:
                    reading.mark.go_past(event, pages)
                    step = await reading.reader.read_event(event)
                    closed = isinstance(step, RunClosed)
                    yield step
            if closed or not follow:
                return
            waits = False  # it has no long poll, or its answer broke off: it is asked now and then
        except RPCError as error:
            if not (resumes or history_moved(error) or (follow and await will_pass(client, error))):
                raise
        resumes = False
        reading.mark.token = None
        await asyncio.sleep(RECONNECT_SECONDS)


async def first_step(client: Client, conversation_id: str, run_id: str | None = None) -> RunStarted | None:
    """What a run was started with; without `run_id`, the latest run. None if its history begins with something else."""
    async for step in read_steps(client, conversation_id, run_id=run_id):
        return step if isinstance(step, RunStarted) else None
    return None
