"""What belongs to a conversation: its runs, the agents that it asked, its forks, and what each has in external storage.

All of this is read from Temporal's histories and index. It needs no key, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from google.protobuf import json_format
from google.protobuf.message import Message as Protobuf
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.sdk.v1.external_storage_pb2 import ExternalStorageReference
from temporalio.client import Client
from temporalio.client import WorkflowExecution as ListedWorkflow

from everturn import names
from everturn.carryover import StoredInRun
from everturn.client.fork_search import ForkLines
from everturn.client.out_of_reach import OutOfReach, named_in, still_there
from everturn.client.runs import describe_run, events_of, latest_run, runs_of
from everturn.errors import InvalidSetting
from everturn.evaluations.client import evaluation_rows
from everturn.history.reader import read_steps
from everturn.history.transcript import Transcript
from everturn.temporal.any_status import OVER, is_over
from everturn.temporal.filter_values import quoted
from everturn.temporal.ids import webhooks_prefix

Claims = dict[str, set[tuple[tuple[str, str], ...]]]
"""Payloads in external storage, by the name of their driver."""

Was = Literal["named", "asked", "fork", "evaluation", "webhook"]
"""What it is to the conversation that was asked for: that one itself, an agent's that it asked, a fork, what an
evaluator said about an answer, or what a webhook was sent."""


@dataclass
class Belonging:
    """A conversation, with its runs and its payloads in external storage."""

    id: str
    was: Was = "named"
    of: str = ""
    """The conversation that asked it, that it was forked from, or that it judges."""
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
    outside: list[str] = field(default_factory=list)
    """What is no conversation and has a part of what was said, in words."""


async def find_belongings(client: Client, conversation_id: str, *, keep_forks: bool = False) -> Belongings:
    """Reads the index and all histories. Raises RPCError, and Refused if the id is not a conversation's."""
    belongings = Belongings(conversation_id)
    stored_outside: list[OutOfReach] = []
    todo = [Belonging(conversation_id)]
    forks = ForkLines(client)
    while todo:
        belonging = todo.pop(0)
        if belonging.id in belongings.conversations:
            continue
        belonging.runs = await runs_of(client, belonging.id)
        if not belonging.runs and belonging.was != "named":
            continue
        belongings.conversations[belonging.id] = belonging
        children, asked_by = await _read_histories(client, belonging, stored_outside)
        if belonging.was == "named":
            belongings.asked_by = asked_by
        # If retention has removed an earlier run, the index still has the conversations that it asked.
        children |= {
            child.id: None
            async for child in client.list_workflows(
                f"ParentWorkflowId = {quoted(belonging.id)} AND WorkflowType = {quoted(names.CONVERSATION)}"
            )
        }
        todo += [Belonging(child, "asked", belonging.id) for child in children]
        if not keep_forks:
            todo += [Belonging(fork.id, "fork", fork.line[0]) for fork in await forks.find_forks(belonging.id)]
    belongings.outside = await still_there(client, stored_outside)
    if keep_forks:
        conversations = belongings.conversations
        kept = [fork.id for origin_id in conversations for fork in await forks.find_forks(origin_id)]
        belongings.kept = [fork_id for fork_id in dict.fromkeys(kept) if fork_id not in conversations]
        belongings.bound = [
            fork_id for fork_id in belongings.kept if await _needs_history_of(client, fork_id, conversations)
        ]
    conversation_ids = [*belongings.conversations]
    belongings.conversations |= await _find_evaluations(client, conversation_ids)
    belongings.conversations |= await _find_deliveries(client, conversation_ids)
    return belongings


async def _find_evaluations(client: Client, conversation_ids: Sequence[str]) -> dict[str, Belonging]:
    """What evaluators said about their answers, which may quote them."""
    evaluations: dict[str, Belonging] = {}
    for conversation_id in conversation_ids:
        for row in await evaluation_rows(client, conversation_id):
            evaluations[row.id] = await _read_belonging(client, row, "evaluation", of=conversation_id)
    return evaluations


async def _find_deliveries(client: Client, conversation_ids: Sequence[str]) -> dict[str, Belonging]:
    """What webhooks were sent about them, which names their calls."""
    deliveries: dict[str, Belonging] = {}
    for conversation_id in conversation_ids:
        prefix = webhooks_prefix(conversation_id)
        query = f"WorkflowType = {quoted(names.WEBHOOK)} AND WorkflowId STARTS_WITH {quoted(prefix)}"
        async for row in client.list_workflows(query):
            if ":" not in row.id.removeprefix(prefix):  # else it is of a conversation whose id begins like this one's
                deliveries[row.id] = await _read_belonging(client, row, "webhook", of=conversation_id)
    return deliveries


async def _read_belonging(client: Client, row: ListedWorkflow, was: Was, *, of: str) -> Belonging:
    """What is no conversation, and has one run."""
    belonging = Belonging(row.id, was, of, runs=[row.run_id], running=not is_over(row))
    async for event in events_of(client, row.id, row.run_id):
        _note_claims(event, belonging.claims)
    return belonging


async def _read_histories(
    client: Client, belonging: Belonging, outside: list[OutOfReach]
) -> tuple[dict[str, None], str]:
    """Reads its histories, and adds what they name `outside`. Returns the ids of the conversations that it asked, in
    order, and of its asker."""
    children: dict[str, None] = {}
    asked_by = ""
    for run_id in belonging.runs:
        async for event in events_of(client, belonging.id, run_id):
            children |= dict.fromkeys(children_of(event))
            _note_claims(event, belonging.claims)
            outside += named_in(event, conversation_id=belonging.id)
            if event.event_id == 1:
                asked_by = await _find_asker(client, event) or asked_by
        described = await describe_run(client, belonging.id, run_id)
        belonging.running |= described is not None and described.workflow_execution_info.status not in OVER
    return children, asked_by


# ---------------------------------------------------------------- what it asked


def children_of(event: HistoryEvent) -> Iterator[str]:
    if event.event_type == EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_STARTED:
        began = event.child_workflow_execution_started_event_attributes
        if began.workflow_type.name == names.CONVERSATION:
            yield began.workflow_execution.workflow_id


async def _find_asker(client: Client, event: HistoryEvent) -> str:
    """The conversation that asked this one; empty if none did, or if it is gone."""
    parent = event.workflow_execution_started_event_attributes.parent_workflow_execution
    if not parent.workflow_id:
        return ""
    described = await describe_run(client, parent.workflow_id, parent.run_id)
    if described is None or described.workflow_execution_info.type.name != names.CONVERSATION:
        return ""
    return parent.workflow_id


async def _needs_history_of(client: Client, conversation_id: str, ids: Collection[str]) -> bool:
    """Whether a part of its transcript is in a history of these; True if it can't be read."""
    try:
        return await _leads_to(client, conversation_id, ids)
    except InvalidSetting:
        return True


async def _leads_to(client: Client, conversation_id: str, ids: Collection[str]) -> bool:
    run_id = await latest_run(client, conversation_id)
    seen: set[tuple[str, str]] = set()
    while run_id and (conversation_id, run_id) not in seen:
        seen.add((conversation_id, run_id))
        transcript = Transcript()
        async for step in read_steps(client, conversation_id, run_id=run_id):
            transcript.take_step(step)
        if not isinstance(earlier := transcript.earlier, StoredInRun):
            return False
        conversation_id = earlier.conversation_id or conversation_id
        run_id = earlier.run_id
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
        for part in inside:
            yield from _payloads_in(part)
