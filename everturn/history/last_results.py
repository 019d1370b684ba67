"""Reads the end of a run's history, for a reader that knows all that came before."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryReverseRequest
from temporalio.client import Client
from temporalio.service import RPCError

from everturn.history.reader import RunReading
from everturn.history.steps import ActivityEnded, RunStarted, ToolCompleted, TurnScheduled
from everturn.history.transcript import Transcript
from everturn.records import ToolResult

FIRST_PAGE = 3
BESIDE_CALLS = 4
"""Entries of a page: what the server wrote together is one. What ran within a workflow task is all in one of the last;
of other calls, each has one to three. So a further page has as many as there are calls, and some more."""


async def last_results(
    client: Client, conversation_id: str, run_id: str, *, call_ids: Collection[str], activity_id: str
) -> dict[str, ToolResult] | None:
    """The results of these calls, which the activity `activity_id` shows to the model. None if they can't be
    found this way: then the whole history has to be read."""
    events: list[HistoryEvent] = []
    try:
        async for page in read_backwards(client, conversation_id, run_id, page_size=len(call_ids) + BESIDE_CALLS):
            events = [*reversed(page), *events]
            results = await _results_in(client, events, activity_id, call_ids)
            if len(results) == len(set(call_ids)):
                return results
    except RPCError:  # the server lacks the method, or moves the history
        return None
    return None


async def read_backwards(
    client: Client, conversation_id: str, run_id: str, *, page_size: int
) -> AsyncIterator[Sequence[HistoryEvent]]:
    execution = WorkflowExecution(workflow_id=conversation_id, run_id=run_id)
    request = GetWorkflowExecutionHistoryReverseRequest(
        namespace=client.namespace, execution=execution, maximum_page_size=FIRST_PAGE
    )
    while True:
        answer = await client.workflow_service.get_workflow_execution_history_reverse(request, retry=True)
        yield answer.history.events
        if not answer.next_page_token:
            return
        request.next_page_token = answer.next_page_token
        request.maximum_page_size = page_size


async def _results_in(
    client: Client, events: Sequence[HistoryEvent], shown_by: str, call_ids: Collection[str]
) -> dict[str, ToolResult]:
    """The same as a reader of whole histories makes of them. What was scheduled before these events is passed over."""
    reader = RunReading(client).reader
    transcript = Transcript()
    for event in events:
        match await reader.read_event(event):
            case TurnScheduled(activity_id=activity_id) if activity_id == shown_by:
                break
            case RunStarted() | ToolCompleted() | ActivityEnded() as step:
                transcript.take_step(step)
            case _:
                pass
    return transcript.results_of([*call_ids])
