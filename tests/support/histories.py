"""What the server recorded of a conversation: its runs, their events, their size."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

from temporalio.api.common.v1 import WorkflowExecution as Execution
from temporalio.client import WorkflowExecution, WorkflowHistory
from temporalio.service import RPCError, RPCStatusCode

from everturn import Client, Conversation, names
from everturn.storage.data_converter import data_converter
from tests.support import agreement
from tests.support.waiting import eventually

TWO_MIB = 2 * 1024 * 1024

_left_out: set[str] = set()


def leave_out(client: Client) -> None:
    """What is on the client's task queue is not compared at the end of the test: the test's process can't read it."""
    _left_out.add(client.task_queue)


async def check_all(client: Client) -> None:
    """Compares the accounts of each run of a conversation on the client's task queue, and of the conversations that
    they began: whoever started it, also one that was reset, or that a later life has taken the place of."""
    if client.task_queue in _left_out:
        _left_out.remove(client.task_queue)
        return
    left, seen = await _listed(client), set[str]()
    while left:
        run = left.pop(0)
        if run.run_id in seen:
            continue
        seen.add(run.run_id)
        try:
            history = await client.temporal.get_workflow_handle(run.id, run_id=run.run_id).fetch_history()
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            continue  # it was deleted, as by a retention
        await agreement.check(history, data_converter)
        for child in _began(history):
            if child.run_id not in seen and child.run_id not in {one.run_id for one in left}:  # it has another queue
                left += await _listed(client, child.workflow_id)


async def _listed(client: Client, conversation_id: str = "") -> list[WorkflowExecution]:
    """The runs of the conversation, or of all on the client's task queue, once the server lists all that there are.

    It does so in the order in which they began, and a while later: so another workflow is begun now, which does not
    run, and waited for."""
    among = f"WorkflowId = '{conversation_id}'" if conversation_id else f"TaskQueue = '{client.task_queue}'"
    mark = f"mark-{uuid4().hex}"
    await client.temporal.start_workflow("Mark", id=mark, task_queue="nobody", start_delay=timedelta(days=1))

    async def up_to_the_mark() -> list[WorkflowExecution]:
        workflows = [workflow async for workflow in client.temporal.list_workflows(f"{among} OR WorkflowId = '{mark}'")]
        return workflows if any(one.id == mark for one in workflows) else []

    listed: list[WorkflowExecution] = await eventually(up_to_the_mark, what="the server lists what was begun")
    return [one for one in listed if one.workflow_type == names.CONVERSATION]


def _began(history: WorkflowHistory) -> list[Execution]:
    """The first runs of the conversations that this one asked."""
    return [
        child.workflow_execution
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
