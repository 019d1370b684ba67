"""What belongs to a conversation: its runs, the agents that it asked, its forks, and what each has in external storage.

All of this is read from Temporal's histories and index. It needs no key, and changes nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from google.protobuf import json_format
from google.protobuf.message import Message as Protobuf
from temporalio.api.common.v1 import Payload, WorkflowExecution
from temporalio.api.enums.v1 import EventType, WorkflowExecutionStatus
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.sdk.v1.external_storage_pb2 import ExternalStorageReference
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from everturn import names
from everturn.carryover import StoredInRun
from everturn.client.fork_lines import forks_by_ancestor
from everturn.client.listing import quoted
from everturn.errors import InvalidSetting, Refused
from everturn.history.reader import read_steps
from everturn.history.transcript import Transcript

Claims = dict[str, set[tuple[tuple[str, str], ...]]]
"""Payloads in external storage, by the name of their driver."""

Was = Literal["named", "asked", "fork"]
"""What a conversation is to the one that was asked for: that one itself, an agent's that it asked, or a fork."""

_RUNNING: Final = WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_RUNNING


@dataclass
class Belonging:
    """A conversation, with its runs and its payloads in external storage."""

    id: str
    was: Was = "named"
    of: str = ""
    """The conversation that asked it, or that it was forked from."""
    runs: list[str] = field(default_factory=list)
    """The ids of all its runs, the latest last."""
    running: bool = False
    claims: Claims = field(default_factory=dict)

    @property
    def payloads(self) -> int:
        return sum(map(len, self.claims.values()))


@dataclass
class Belongings:
    """A conversation with all that belongs to it."""

    id: str
    conversations: dict[str, Belonging] = field(default_factory=dict)
    """By id; the named one is the first, and each comes after the one that it belongs to."""
    asked_by: str = ""
    """The conversation whose call this one answers, if it still exists."""
    kept: list[str] = field(default_factory=list)
    """With `keep_forks`: the forks that stay, and those of forks."""
    bound: list[str] = field(default_factory=list)
    """The kept forks that can't be read without a history of `conversations`, which has their beginning."""


async def find_belongings(client: Client, conversation_id: str, *, keep_forks: bool = False) -> Belongings:
    """Reads the index and all histories. Raises RPCError, and Refused if the id is not a conversation's."""
    found = Belongings(conversation_id)
    todo = [Belonging(conversation_id)]
    forks = await forks_by_ancestor(client)
    while todo:
        one = todo.pop(0)
        if one.id in found.conversations:
            continue
        one.runs = await runs_of(client, one.id)
        if not one.runs and one.was != "named":
            continue
        found.conversations[one.id] = one
        asked, asked_by = await _read(client, one)
        if one.was == "named":
            found.asked_by = asked_by
        # If retention has removed an earlier run, the index still has the conversations that it asked.
        asked |= {
            child.id: None
            async for child in client.list_workflows(
                f"ParentWorkflowId = {quoted(one.id)} AND WorkflowType = {quoted(names.CONVERSATION)}"
            )
        }
        todo += [Belonging(child, "asked", one.id) for child in asked]
        if not keep_forks:
            todo += [Belonging(fork.id, "fork", fork.line[0]) for fork in forks.get(one.id, ())]
    if keep_forks:
        kept = [fork.id for one in found.conversations for fork in forks.get(one, ())]
        found.kept = [one for one in dict.fromkeys(kept) if one not in found.conversations]
        found.bound = [fork for fork in found.kept if await _needs(client, fork, found.conversations)]
    return found


async def _read(client: Client, one: Belonging) -> tuple[dict[str, None], str]:
    """Reads its histories. Returns the ids of the conversations that it asked, in order, and of its asker."""
    asked: dict[str, None] = {}
    asked_by = ""
    for run in one.runs:
        async for event in events_of(client, one.id, run):
            asked |= dict.fromkeys(children_of(event))
            _note_claims(event, one.claims)
            if event.event_id == 1:
                asked_by = await _parent(client, event) or asked_by
        described = await describe(client, one.id, run)
        one.running |= described is not None and described.workflow_execution_info.status == _RUNNING
    return asked, asked_by


# ---------------------------------------------------------------- runs


async def runs_of(client: Client, conversation_id: str) -> list[str]:
    """The ids of all its runs, the latest last, including those before a revival or a reset."""
    query = f"WorkflowId = {quoted(conversation_id)} AND WorkflowType = {quoted(names.CONVERSATION)}"
    runs = [one.run_id async for one in client.list_workflows(query)]
    runs.reverse()
    # The index lags. So the newest run is asked for directly, and each run says which one came before it.
    run = await _latest(client, conversation_id)
    chain: list[str] = []
    while run and run not in chain:
        chain.insert(0, run)
        run = await _run_before(client, conversation_id, run)
    return [one for one in runs if one not in chain] + chain


async def _latest(client: Client, conversation_id: str) -> str:
    described = await describe(client, conversation_id, "")
    if described is None:
        return ""
    if (kind := described.workflow_execution_info.type.name) != names.CONVERSATION:
        raise Refused(f"{conversation_id!r} is no conversation, but a workflow of type {kind!r}.", cure="Check the id.")
    return str(described.workflow_execution_info.execution.run_id)


async def _run_before(client: Client, conversation_id: str, run: str) -> str:
    async for event in events_of(client, conversation_id, run, page_size=1):
        began = event.workflow_execution_started_event_attributes
        reset_from = began.original_execution_run_id
        return began.continued_execution_run_id or (reset_from if reset_from != run else "")
    return ""


async def describe(client: Client, conversation_id: str, run: str) -> Any:
    """None if there is no such run."""
    execution = WorkflowExecution(workflow_id=conversation_id, run_id=run)
    request = DescribeWorkflowExecutionRequest(namespace=client.namespace, execution=execution)
    try:
        return await client.workflow_service.describe_workflow_execution(request)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return None


async def events_of(
    client: Client, conversation_id: str, run: str, *, page_size: int | None = None
) -> AsyncIterator[HistoryEvent]:
    """The events of a run; none if the run is gone."""
    handle = client.get_workflow_handle(conversation_id, run_id=run)
    try:
        async for event in handle.fetch_history_events(page_size=page_size):
            yield event
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise


# ---------------------------------------------------------------- what is around


def children_of(event: HistoryEvent) -> Iterator[str]:
    if event.event_type == EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_STARTED:
        began = event.child_workflow_execution_started_event_attributes
        if began.workflow_type.name == names.CONVERSATION:
            yield began.workflow_execution.workflow_id


async def _parent(client: Client, event: HistoryEvent) -> str:
    """The conversation that asked this one; empty if none did, or if it is gone."""
    asked = event.workflow_execution_started_event_attributes.parent_workflow_execution
    if not asked.workflow_id:
        return ""
    described = await describe(client, asked.workflow_id, asked.run_id)
    ours = described is not None and described.workflow_execution_info.type.name == names.CONVERSATION
    return asked.workflow_id if ours else ""


async def _needs(client: Client, conversation_id: str, ids: Collection[str]) -> bool:
    """Whether a part of its transcript is in a history of these; True if it can't be read."""
    try:
        return await _leads_to(client, conversation_id, ids)
    except InvalidSetting:
        return True


async def _leads_to(client: Client, conversation_id: str, ids: Collection[str]) -> bool:
    run, seen = await _latest(client, conversation_id), set[tuple[str, str]]()
    while run and (conversation_id, run) not in seen:
        seen.add((conversation_id, run))
        transcript = Transcript()
        async for step in read_steps(client, conversation_id, run_id=run):
            transcript.take(step)
        if not isinstance(earlier := transcript.earlier, StoredInRun):
            return False
        conversation_id, run = earlier.conversation_id or conversation_id, earlier.run_id
        if conversation_id in ids:
            return True
    return False


def _note_claims(event: Protobuf, claims: Claims) -> None:
    for payload in _payloads_in(event):
        if payload.external_payloads:
            reference = ExternalStorageReference()
            try:
                json_format.Parse(payload.data, reference, ignore_unknown_fields=True)
            except json_format.ParseError:
                continue
            claims.setdefault(reference.driver_name, set()).add(tuple(sorted(reference.claim_data.items())))


def _payloads_in(message: Protobuf) -> Iterator[Payload]:
    if isinstance(message, Payload):
        yield message
        return
    for descriptor, value in message.ListFields():
        if descriptor.message_type is None:
            continue
        if descriptor.message_type.GetOptions().map_entry:
            inside: Any = value.values() if descriptor.message_type.fields_by_name["value"].message_type else ()
        else:
            inside = [value] if isinstance(value, Protobuf) else value
        for one in inside:
            yield from _payloads_in(one)
