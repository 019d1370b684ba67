"""Finds the request of a turn that waits for a batch, from the end of its conversation's history: as long as it waits,
that is near."""

from __future__ import annotations

from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client

from everturn import names
from everturn.history import event_types
from everturn.history.last_results import read_backwards
from everturn.history.reader import Reading
from everturn.history.steps import TurnScheduled
from everturn.payloads import ModelRequest

PAGE = 20
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


async def waiting_request(client: Client, conversation_id: str, run_id: str, activity_id: str) -> ModelRequest | None:
    """The input of this `call_model`, after which the conversation has been waiting; None if it waits no more, or can't
    be read. Raises RPCError."""
    reader = Reading(client).reader
    async for page in read_backwards(client, conversation_id, run_id, further=PAGE):
        for event in page:  # the newest first
            if _ends_the_wait(event):
                return None
            if _is_model_call(event):
                step = await reader.read_event(event)
                if isinstance(step, TurnScheduled) and step.activity_id == activity_id:
                    return step.request
                return None
    return None


def _is_model_call(event: HistoryEvent) -> bool:
    scheduled = event.activity_task_scheduled_event_attributes
    return event.event_type == event_types.ACTIVITY_TASK_SCHEDULED and scheduled.activity_type.name == names.CALL_MODEL


def _ends_the_wait(event: HistoryEvent) -> bool:
    if event.event_type == event_types.SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED:
        initiated = event.signal_external_workflow_execution_initiated_event_attributes
        return initiated.signal_name == names.LEAVE_BATCH
    return event.event_type in _ENDS
