"""Events of users' own activities and of Nexus operations, which serve calls unchanged, and of the checks of a call
before one of them runs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from pydantic import ValidationError
from temporalio.api.common.v1 import Payloads
from temporalio.api.enums.v1 import EventType
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import ActivityTaskScheduledEventAttributes, HistoryEvent
from temporalio.common import RawValue
from temporalio.converter import DataConverter
from temporalio.exceptions import (
    ApplicationError,
    NexusOperationError,
    TimeoutError,  # noqa: A004 - Temporal's
    TimeoutType,
)

from everturn import names
from everturn.calls import activity_outputs
from everturn.calls.causes import cause_of
from everturn.history import event_types
from everturn.history.decoding import Decoder
from everturn.history.steps import ActivityEnded, CallChecked, CheckScheduled, Step, ToolRunFailed, ToolScheduled
from everturn.payloads import ToolRequest
from everturn.plans import ActivityCall, CheckedCall
from everturn.sizes import MAX_RESULT_CHARS

NEXUS_EVENTS = frozenset(number for name, number in EventType.items() if name.startswith("EVENT_TYPE_NEXUS_OPERATION_"))


@dataclass(frozen=True)
class _RunningActivity:
    served: ActivityCall
    name: str
    """Of the activity; of a Nexus operation, its service and its name."""
    where: str
    """The activity's task queue, or the operation's endpoint."""
    taken_within: float = 0.0

    @property
    def request(self) -> ToolRequest:
        return ToolRequest(agent="", turn=self.served.turn, call_id=self.served.call_id)


class ActivityReader:
    def __init__(self, converter: DataConverter) -> None:
        self._converter = converter
        self._decoder = Decoder(converter)
        self._running: dict[int, _RunningActivity] = {}
        self._checks: dict[int, ToolRequest] = {}
        """Calls that are checked before they run."""

    async def take_scheduled(
        self, event_id: int, time: datetime, scheduled: ActivityTaskScheduledEventAttributes
    ) -> tuple[bool, Step | None]:
        """Whether the activity is one of these, and which step it is."""
        if scheduled.activity_type.name == names.CHECK_CALL:
            if request := await self._decoder.read_record(scheduled.input, ToolRequest):
                self._checks[event_id] = request
                return True, CheckScheduled(event_id, time, request.call_id)
            return True, None
        header = scheduled.header.fields.get(names.CALL_HEADER)
        if not header:
            return False, None
        served = await self._decoder.read_record(Payloads(payloads=[header]), ActivityCall)
        if served is None:
            return False, None
        queue = scheduled.task_queue.name
        within = scheduled.schedule_to_start_timeout.ToTimedelta()
        running = _RunningActivity(served, scheduled.activity_type.name, queue, within.total_seconds())
        self._running[event_id] = running
        return True, ToolScheduled(event_id, time, served.tool, running.request, scheduled.activity_id)

    async def take_completed(self, event_id: int, time: datetime, scheduled_id: int, output: Payloads) -> Step | None:
        if request := self._checks.pop(scheduled_id, None):
            checked, problem = await self._decoder.try_to_read(output, CheckedCall)
            if checked is None:
                return ToolRunFailed(event_id, time, request.tool, request, problem, names.NOT_CHECKED)
            return CallChecked(event_id, time, request, checked.arguments, checked.result)
        if not (running := self._running.pop(scheduled_id, None)):
            return None
        return await self._read_output(running, event_id, time, output)

    async def _read_output(self, running: _RunningActivity, event_id: int, time: datetime, output: Payloads) -> Step:
        served = running.served
        request = running.request
        raw: RawValue | None = None
        returned: Any = None
        problem = ""
        if output.payloads:
            raw, problem = await self._decoder.try_to_read(output, RawValue)
        if not problem:
            returned, problem = activity_outputs.value_in(raw, self._converter.payload_converter)
        if problem:
            cause = activity_outputs.unreadable_text(served.tool, problem)
            return ToolRunFailed(event_id, time, served.tool, request, cause, names.UNREADABLE_RESULT)
        result = activity_outputs.result_of(served.call_id, served.tool, returned, max_chars=MAX_RESULT_CHARS)
        return ActivityEnded(event_id, time, served.tool, request, result)

    async def take_failed(self, event_id: int, time: datetime, scheduled_id: int, failure: Failure) -> Step | None:
        error = await self._converter.decode_failure(failure)
        failure_cause = cause_of(error)
        if request := self._checks.pop(scheduled_id, None):
            failed_run = ToolRunFailed(
                event_id,
                time,
                request.tool,
                request,
                failure_cause.cause,
                failure_cause.kind,
                failure_cause.cure,
                proposed=failure_cause.proposed,
            )
            if not failure_cause.not_hosted:
                return failed_run
            return _handed_back(failed_run, was_waiting=request.hand_back_for is not None)
        if not (running := self._running.pop(scheduled_id, None)):
            return None
        served = running.served
        request = running.request
        failed_run = ToolRunFailed(
            event_id, time, served.tool, request, failure_cause.cause, failure_cause.kind, failure_cause.cure
        )
        match error:
            case TimeoutError(type=TimeoutType.SCHEDULE_TO_START):
                cause, cure = activity_outputs.not_taken(running.name, running.where, running.taken_within)
                return _handed_back(
                    replace(failed_run, cause=cause, cure=cure, kind=names.NOT_TAKEN), was_waiting=served.awaited
                )
            case TimeoutError():
                return replace(failed_run, again=served.again)
            case ApplicationError() if served.own_queue and failure_cause.not_hosted:
                return _handed_back(failed_run, was_waiting=served.awaited)
            case _:
                result = activity_outputs.failure_of(served.call_id, served.tool, error, max_chars=MAX_RESULT_CHARS)
                return ActivityEnded(event_id, time, served.tool, request, result)

    async def read_operation(self, event: HistoryEvent, time: datetime) -> Step | None:
        """The step for an event of a Nexus operation."""
        match event.event_type:
            case event_types.NEXUS_OPERATION_SCHEDULED:
                return self._operation_scheduled(event, time)
            case event_types.NEXUS_OPERATION_CANCEL_REQUESTED:
                self._running.pop(event.nexus_operation_cancel_requested_event_attributes.scheduled_event_id, None)
            case event_types.NEXUS_OPERATION_COMPLETED:
                gave = event.nexus_operation_completed_event_attributes
                if running := self._running.pop(gave.scheduled_event_id, None):
                    return await self._read_output(running, event.event_id, time, Payloads(payloads=[gave.result]))
            case event_types.NEXUS_OPERATION_TIMED_OUT:
                late = event.nexus_operation_timed_out_event_attributes
                return await self._operation_ended(event.event_id, time, late.scheduled_event_id, late.failure)
            case event_types.NEXUS_OPERATION_FAILED:
                failed = event.nexus_operation_failed_event_attributes
                return await self._operation_ended(event.event_id, time, failed.scheduled_event_id, failed.failure)
            case event_types.NEXUS_OPERATION_CANCELED:
                stopped = event.nexus_operation_canceled_event_attributes
                return await self._operation_ended(event.event_id, time, stopped.scheduled_event_id, stopped.failure)
            case _:
                pass
        return None

    def not_begun(self, event_id: int, time: datetime, call_id: str, within: timedelta) -> Step | None:
        """Nobody began a call's operation in time. The conversation waits until somebody does."""
        for running in self._running.values():
            if running.served.call_id == call_id:
                cause, cure = activity_outputs.not_started(running.where, running.name, within)
                served = running.served.tool
                return ToolRunFailed(
                    event_id, time, served, running.request, cause, names.NOT_TAKEN, cure, awaited=True
                )
        return None

    def _operation_scheduled(self, event: HistoryEvent, time: datetime) -> Step | None:
        scheduled = event.nexus_operation_scheduled_event_attributes
        try:
            served = ActivityCall.model_validate_json(scheduled.nexus_header.get(names.CALL_HEADER, ""))
        except ValidationError:
            return None
        name = f"{scheduled.service}/{scheduled.operation}"
        running = self._running[event.event_id] = _RunningActivity(served, name, scheduled.endpoint)
        return ToolScheduled(event.event_id, time, served.tool, running.request)

    async def _operation_ended(self, event_id: int, time: datetime, scheduled_id: int, failure: Failure) -> Step | None:
        if not (running := self._running.pop(scheduled_id, None)):
            return None
        error = await self._converter.decode_failure(failure)
        served = running.served
        request = running.request
        failure_cause = cause_of(error)
        cause: BaseException = error
        if isinstance(error, NexusOperationError):
            cause = error.__cause__ or error
        lost = ToolRunFailed(
            event_id, time, served.tool, request, failure_cause.cause, failure_cause.kind, failure_cause.cure
        )
        match cause:
            case TimeoutError():
                return lost
            case _:
                result = activity_outputs.failure_of(served.call_id, served.tool, cause, max_chars=MAX_RESULT_CHARS)
                return ActivityEnded(event_id, time, served.tool, request, result)

    def forget(self, scheduled_id: int) -> None:
        """It was cancelled, and the conversation went on without it."""
        self._running.pop(scheduled_id, None)
        self._checks.pop(scheduled_id, None)


def _handed_back(failed: ToolRunFailed, *, was_waiting: bool) -> ToolRunFailed:
    """No worker took it. `was_waiting`: the conversation was already waiting for a worker, and stalls now."""
    return replace(failed, awaited=not was_waiting, stalled=was_waiting)
