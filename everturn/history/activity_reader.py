"""Events of users' own activities, which serve calls as they are, and of the looks at a call before one runs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from temporalio.api.common.v1 import Payloads
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import ActivityTaskScheduledEventAttributes
from temporalio.common import RawValue
from temporalio.converter import DataConverter
from temporalio.exceptions import ApplicationError, TimeoutError, TimeoutType  # noqa: A004 - Temporal's

from everturn import activity_outputs, names
from everturn.causes import cause_of
from everturn.history.decoding import Decoder
from everturn.history.steps import ActivityEnded, Step, ToolRunFailed, ToolScheduled
from everturn.models import MAX_RESULT_CHARS
from everturn.payloads import ToolRequest
from everturn.plans import ActivityCall, CheckedCall


@dataclass(frozen=True)
class _Running:
    served: ActivityCall
    activity: str
    task_queue: str
    taken_within: float

    @property
    def request(self) -> ToolRequest:
        return ToolRequest(agent="", turn=self.served.turn, call_id=self.served.call_id)


class ActivityReader:
    def __init__(self, converter: DataConverter) -> None:
        self._converter = converter
        self._decoder = Decoder(converter)
        self._running: dict[int, _Running] = {}
        self._checks: dict[int, ToolRequest] = {}
        """Calls that are looked at before they run."""

    async def scheduled(
        self, event_id: int, at: datetime, scheduled: ActivityTaskScheduledEventAttributes
    ) -> tuple[bool, Step | None]:
        """Whether the activity is one of these, and the step that it is."""
        if scheduled.activity_type.name == names.CHECK_CALL:
            if request := await self._decoder.record(scheduled.input, ToolRequest):
                self._checks[event_id] = request
            return True, None
        header = scheduled.header.fields.get(names.CALL_HEADER)
        served = await self._decoder.record(Payloads(payloads=[header]), ActivityCall) if header else None
        if served is None:
            return False, None
        queue, within = scheduled.task_queue.name, scheduled.schedule_to_start_timeout.ToTimedelta()
        running = _Running(served, scheduled.activity_type.name, queue, within.total_seconds())
        self._running[event_id] = running
        return True, ToolScheduled(event_id, at, served.tool, running.request, scheduled.activity_id)

    async def completed(self, event_id: int, at: datetime, scheduled_id: int, output: Payloads) -> Step | None:
        if request := self._checks.pop(scheduled_id, None):
            checked, why = await self._decoder.readable(output, CheckedCall)
            return None if checked else ToolRunFailed(event_id, at, request.tool, request, why, names.NOT_CHECKED)
        if not (running := self._running.pop(scheduled_id, None)):
            return None
        served, request, raw, why = running.served, running.request, None, ""
        if output.payloads:
            raw, why = await self._decoder.readable(output, RawValue)
        value, why = (None, why) if why else activity_outputs.value_in(raw, self._converter.payload_converter)
        if why:
            cause = activity_outputs.unreadable(served.tool, why)
            return ToolRunFailed(event_id, at, served.tool, request, cause, names.UNREADABLE_RESULT)
        result = activity_outputs.result_of(served.call_id, served.tool, value, max_chars=MAX_RESULT_CHARS)
        return ActivityEnded(event_id, at, served.tool, request, result)

    async def failed(self, event_id: int, at: datetime, scheduled_id: int, failure: Failure) -> Step | None:
        error = await self._converter.decode_failure(failure)
        told = cause_of(error)
        if request := self._checks.pop(scheduled_id, None):
            lost = ToolRunFailed(event_id, at, request.tool, request, told.cause, told.kind, told.cure)
            return _handed_back(lost, told=request.hand_back_for is not None) if told.not_hosted else lost
        if not (running := self._running.pop(scheduled_id, None)):
            return None
        served, request = running.served, running.request
        lost = ToolRunFailed(event_id, at, served.tool, request, told.cause, told.kind, told.cure)
        match error:
            case TimeoutError(type=TimeoutType.SCHEDULE_TO_START):
                cause, cure = activity_outputs.not_taken(running.activity, running.task_queue, running.taken_within)
                return _handed_back(replace(lost, cause=cause, cure=cure, kind=names.NOT_TAKEN), told=served.awaited)
            case TimeoutError():
                return replace(lost, again=served.again)
            case ApplicationError() if served.own_queue and told.not_hosted:
                return _handed_back(lost, told=served.awaited)
            case _:
                result = activity_outputs.failure_of(served.call_id, served.tool, error, max_chars=MAX_RESULT_CHARS)
                return ActivityEnded(event_id, at, served.tool, request, result)

    def forget(self, scheduled_id: int) -> None:
        """It was cancelled, and the conversation has gone on without it."""
        self._running.pop(scheduled_id, None)
        self._checks.pop(scheduled_id, None)


def _handed_back(failed: ToolRunFailed, *, told: bool) -> ToolRunFailed:
    """No worker had it. `told`: the conversation was waiting for one already; now it stalls."""
    return replace(failed, awaited=not told, stalled=told)
