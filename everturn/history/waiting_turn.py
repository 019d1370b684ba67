"""Finds the request of a turn that waits for a batch, from the end of its conversation's history: as long as it waits,
that is near."""

from __future__ import annotations

from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client

from everturn import names
from everturn.batching.records import BatchLine
from everturn.history import event_types
from everturn.history.last_results import read_backwards
from everturn.history.reader import RunReading
from everturn.history.resets import run_after_reset
from everturn.history.steps import TurnScheduled
from everturn.payloads import ModelRequest

PAGE = 20
MOST_RESETS = 10
"""After each other, through which a line is followed."""

_ENDS = frozenset(
    {
        event_types.WORKFLOW_EXECUTION_CANCELED,
        event_types.WORKFLOW_EXECUTION_CANCEL_REQUESTED,
        event_types.WORKFLOW_EXECUTION_COMPLETED,
        event_types.WORKFLOW_EXECUTION_CONTINUED_AS_NEW,
        event_types.WORKFLOW_EXECUTION_FAILED,
        event_types.WORKFLOW_EXECUTION_TERMINATED,
        event_types.WORKFLOW_EXECUTION_TIMED_OUT,
    }
)


async def waiting_request(client: Client, line: BatchLine) -> tuple[str, ModelRequest] | None:
    """The run that waits for this line, and the input of its `call_model`; None if nobody waits for it any more, or it
    can't be read. Raises RPCError."""
    run_id = line.run_id
    for _ in range(MOST_RESETS):
        if request := await _request_in(client, line, run_id):
            return run_id, request
        run_id = await run_after_reset(client, line.conversation, run_id)
        if not run_id:
            return None
    return None


async def _request_in(client: Client, line: BatchLine, run_id: str) -> ModelRequest | None:
    reader = RunReading(client).reader
    is_waiting = False
    async for page in read_backwards(client, line.conversation, run_id, page_size=PAGE):
        for event in page:  # the newest first
            if _ends_the_wait(event):
                return None
            if _joins(event):
                if not await _is_of_line(client, event, line):
                    return None
                is_waiting = True
            if _is_model_call(event):
                step = await reader.read_event(event)
                if is_waiting and isinstance(step, TurnScheduled) and step.activity_id == line.activity_id:
                    return step.request
                return None
    return None


async def _is_of_line(client: Client, event: HistoryEvent, line: BatchLine) -> bool:
    payloads = event.signal_external_workflow_execution_initiated_event_attributes.input.payloads
    try:
        [joined] = await client.data_converter.decode(payloads, [BatchLine])
    except Exception:  # noqa: BLE001 - whatever it is, the line can't be made
        return False
    return isinstance(joined, BatchLine) and joined.id == line.id


def _is_model_call(event: HistoryEvent) -> bool:
    scheduled = event.activity_task_scheduled_event_attributes
    return event.event_type == event_types.ACTIVITY_TASK_SCHEDULED and scheduled.activity_type.name == names.CALL_MODEL


def _joins(event: HistoryEvent) -> bool:
    return _signal_name(event) == names.JOIN_BATCH


def _ends_the_wait(event: HistoryEvent) -> bool:
    return event.event_type in _ENDS or _signal_name(event) == names.LEAVE_BATCH


def _signal_name(event: HistoryEvent) -> str:
    """Of a signal that the conversation sends; empty if it is something else."""
    if event.event_type != event_types.SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED:
        return ""
    return event.signal_external_workflow_execution_initiated_event_attributes.signal_name
