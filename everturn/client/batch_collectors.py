"""What a conversation that waits for a provider's batch does not know itself: that an operator has ended or paused the
collector that would tell it of the reply."""

from __future__ import annotations

from datetime import datetime

from temporalio.client import Client, WorkflowExecutionDescription
from temporalio.service import RPCError

from everturn.payloads import Status
from everturn.temporal.any_status import describe, held_up, is_over, status_name
from everturn.temporal.temporal_errors import not_found
from everturn.text.commands import command_about


async def with_collector(status: Status, conversation_id: str, temporal: Client) -> Status:
    """The status, with what is wrong with the collector that its turn has joined. Raises nothing."""
    try:
        described = await describe(temporal, status.collector)
    except RPCError as error:
        if not not_found(error):
            return status
        return _with_loss(status, conversation_id, "is gone")
    if held := held_up(described):
        return status.model_copy(update={"cause": f"{status.cause} {held[0]}", "cure": held[1]})
    if is_over(described):
        return _with_loss(status, conversation_id, f"is {status_name(described.raw_info.status)}")
    if await _began_later(described, status.joined_at, temporal):
        return _with_loss(status, conversation_id, "has ended, and another one does not know of the turn")
    return status


async def _began_later(collector: WorkflowExecutionDescription, joined_at: str, temporal: Client) -> bool:
    """Whether the first run of its chain began after the turn had joined: then it was another one's."""
    first_run_id = collector.raw_description.workflow_execution_info.first_run_id
    try:
        first = await describe(temporal, collector.id, first_run_id or collector.run_id)
    except RPCError:  # its retention is over
        return False
    return first.start_time.replace(microsecond=0) > datetime.fromisoformat(joined_at)  # which is in seconds


def _with_loss(status: Status, conversation_id: str, what: str) -> Status:
    cause = f"{status.cause} Its collector, {status.collector!r}, {what}: nobody will tell it of the reply."
    cancel = command_about("cancel-turn", conversation_id)
    cure = f"`{cancel}`, and send the message again. If the batch was answered after all, that is paid twice."
    return status.model_copy(update={"cause": cause, "cure": cure})
