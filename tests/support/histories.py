"""What the server recorded of a conversation: its runs, their events, their size."""

from __future__ import annotations

from temporalio.client import WorkflowHistory
from temporalio.service import RPCError, RPCStatusCode

from everturn import Client, Conversation, names
from everturn.storage.data_converter import data_converter
from tests.support import agreement

TWO_MIB = 2 * 1024 * 1024

started: dict[str, list[str]] = {}
"""The ids of the conversations that a test began, by task queue: they are replayed at its end."""


async def replay_all(client: Client) -> None:
    """Replays what was started on the client's task queue, event by event, each of its runs and of the conversations
    that it began: each comes to what its history and its events say."""
    left, seen = started.pop(client.task_queue, []), set[str]()
    while left:
        conversation_id = left.pop(0)
        if conversation_id in seen:
            continue
        seen.add(conversation_id)
        run_id: str | None = None  # the latest, and then those before it
        while run_id != "":
            try:
                history = await client.temporal.get_workflow_handle(conversation_id, run_id=run_id).fetch_history()
            except RPCError as error:
                if run_id is None or error.status is not RPCStatusCode.NOT_FOUND:
                    raise
                break  # it was deleted, as by a retention
            await agreement.check(history, data_converter)
            left += _began(history)
            run_id = history.events[0].workflow_execution_started_event_attributes.continued_execution_run_id


def _began(history: WorkflowHistory) -> list[str]:
    """The ids of conversations that this one asked."""
    return [
        child.workflow_execution.workflow_id
        for child in (event.child_workflow_execution_started_event_attributes for event in history.events)
        if child.workflow_type.name == names.CONVERSATION
    ]


async def completed_activities(client: Client, conversation: Conversation) -> int:
    """How many activities of the latest run brought a result."""
    history = await client.temporal.get_workflow_handle(conversation.id).fetch_history()
    return sum(event.HasField("activity_task_completed_event_attributes") for event in history.events)


async def runs_of(client: Client, conversation: Conversation) -> list[str]:
    """The ids of its runs, the first one first."""
    handle = client.temporal.get_workflow_handle(conversation.id)
    runs: list[str] = []
    described = await handle.describe()
    history = await client.temporal.get_workflow_handle(conversation.id, run_id=described.run_id).fetch_history()
    while True:
        started = history.events[0].workflow_execution_started_event_attributes
        runs.insert(0, started.original_execution_run_id)
        if not started.continued_execution_run_id:
            return runs
        history = await client.temporal.get_workflow_handle(
            conversation.id, run_id=started.continued_execution_run_id
        ).fetch_history()


async def largest_payload(client: Client, conversation: Conversation) -> int:
    """Of all its runs: an event has little more than its payload."""
    sizes: list[int] = []
    for run_id in await runs_of(client, conversation):
        history = await client.temporal.get_workflow_handle(conversation.id, run_id=run_id).fetch_history()
        sizes += [event.ByteSize() for event in history.events]
    return max(sizes)
