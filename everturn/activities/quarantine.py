"""Stops `once` calls that may have run already, after the server's database was restored from a backup.

What happened after the backup is in no history any more, but its effects stay: a payment was made. The conversation
would do it again, often with other call ids, since the model is asked again. This much can be known: a call for a
message from before the restore may have run already; a call for a later message has not. Histories say when
messages came, by the server's clock (decision 0043).

A worker notices one sign of a restore by itself, even if nobody told it: it is given the very try of a call that it has
already begun. A server does that only if it has forgotten the first time.
"""

from __future__ import annotations

from collections import OrderedDict
from datetime import UTC, datetime
from typing import Final

from temporalio import activity
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.service import RPCError

from everturn import names
from everturn.history.reader import HistoryReader
from everturn.history.state_by_history import StateByHistory
from everturn.history.steps import MessageSent, RunStarted
from everturn.logs import get_logger
from everturn.payloads import ToolRequest
from everturn.temporal.temporal_errors import not_found
from everturn.text.iso_times import iso_time

MOST_BEGUN: Final = 10_000
"""Tries of `once` calls that a worker remembers."""

LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)
"""Used as the time of a message if no history of it is left."""

_log = get_logger("everturn.tool")


class Quarantine:
    """`restored_at`: a moment between the backup and the start of the restored server; None if nothing was restored."""

    def __init__(self, restored_at: datetime | None = None) -> None:
        self._restored_at = restored_at
        self._begun: OrderedDict[tuple[str, str, int], None] = OrderedDict()

    async def check_call(self, tool: str, request: ToolRequest) -> None:
        """Raises ApplicationError if this call may have run in what was lost. If a person has said to run it anyway, it
        is not checked."""
        if request.again:
            return
        if problem := self._begun_before() or await self._from_before(tool):
            _log.warning("tool.quarantined", tool=tool, why=problem)
            # Otherwise Temporal would log a traceback.
            raise ApplicationError(
                problem, type=names.MAY_HAVE_RUN, non_retryable=True, category=ApplicationErrorCategory.BENIGN
            )

    def note_begun(self) -> None:
        """Notes that this try of the call runs now."""
        self._begun[_this_try()] = None
        while len(self._begun) > MOST_BEGUN:
            self._begun.popitem(last=False)

    def _begun_before(self) -> str:
        if _this_try() not in self._begun:
            return ""
        return (
            "this worker has run this very call before, and the server has forgotten it: "
            "its database must have been restored from a backup"
        )

    async def _from_before(self, tool: str) -> str:
        if self._restored_at is None:
            return ""
        info = activity.info()
        when = iso_time(self._restored_at)
        try:
            message_at = await message_time(activity.client(), info.workflow_id or "", info.workflow_run_id or "")
        except RPCError as error:
            problem = f"the database was restored at {when}, and whether {tool} ran before can't be seen: "
            raise ApplicationError(
                problem + error.message.rstrip("."), type=names.NOT_CHECKED, non_retryable=True
            ) from error
        if message_at > self._restored_at:
            return ""
        return (
            f"the database was restored at {when}, and {tool} may have run in what was lost: it is for a message of "
            f"{'before' if message_at == LONG_AGO else iso_time(message_at)}"
        )


async def message_time(client: Client, conversation_id: str, run_id: str) -> datetime:
    """When the message came that the conversation answers now, or answered last; if several were answered together, the
    first of them. LONG_AGO if that can't be known any more. Raises RPCError."""
    by_history = StateByHistory(run_id=run_id)
    reader = HistoryReader(client.data_converter)
    answered_at = LONG_AGO
    try:
        async for event in client.get_workflow_handle(conversation_id, run_id=run_id).fetch_history_events():
            step = await reader.read_event(event)
            at_rest = _at_rest(by_history)
            by_history.take_step(step)
            match step:
                case RunStarted(at=at):
                    answered_at = await _started_for(client, conversation_id, event, by_history, at)
                case MessageSent(at=at) if at_rest:
                    answered_at = at
                case _:
                    pass
    except RPCError as error:
        if not not_found(error):
            raise
        return LONG_AGO
    return answered_at


def _at_rest(by_history: StateByHistory) -> bool:
    """Whether no message waits for an answer."""
    return not (by_history.state.answering or by_history.state.inbox.messages or by_history.signals.has_message)


async def _started_for(
    client: Client, conversation_id: str, event: HistoryEvent, by_history: StateByHistory, started_at: datetime
) -> datetime:
    """When the message came that the run began with. A run that goes on with an answer has the message from the run
    before it. An agent that was asked has it from the workflow that asked."""
    began = event.workflow_execution_started_event_attributes
    if began.continued_execution_run_id:
        earlier = await message_time(client, conversation_id, began.continued_execution_run_id)
        if _at_rest(by_history):
            return started_at
        return min(started_at, earlier)
    parent = began.parent_workflow_execution
    if not parent.workflow_id:
        return started_at
    return min(started_at, await _message_time_of(client, parent.workflow_id, parent.run_id))


async def _message_time_of(client: Client, workflow_id: str, run_id: str) -> datetime:
    """The same for a workflow that asks an agent. For a user's own workflow, only its start is known."""
    async for event in client.get_workflow_handle(workflow_id, run_id=run_id).fetch_history_events(page_size=1):
        began = event.workflow_execution_started_event_attributes
        if began.workflow_type.name == names.CONVERSATION:
            return await message_time(client, workflow_id, run_id)
        first_run_id = began.first_execution_run_id
        if first_run_id and first_run_id != run_id:
            return await _message_time_of(client, workflow_id, first_run_id)
        return event.event_time.ToDatetime(tzinfo=UTC)
    return LONG_AGO


def _this_try() -> tuple[str, str, int]:
    info = activity.info()
    return info.workflow_run_id or "", info.activity_id, info.attempt
