"""Deletes a conversation with all that belongs to it: every run, its sub-agents, its artifacts, its stored payloads.

What is found is told first, as Belongings; then it is deleted from the outside in, the histories last: whatever stops
that in the middle, the histories still say what is left, and the same again goes on with it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from google.protobuf import json_format
from google.protobuf.message import Message as Protobuf
from pydantic_core import from_json
from temporalio.api.common.v1 import Payload, WorkflowExecution
from temporalio.api.enums.v1 import EventType, WorkflowExecutionStatus
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.sdk.v1.external_storage_pb2 import ExternalStorageReference
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest, DescribeWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.converter import StorageDriverClaim
from temporalio.service import RPCError, RPCStatusCode

from everturn import names
from everturn.carryover import InRun
from everturn.client.listing import quoted
from everturn.errors import InvalidSetting, Refused
from everturn.history.reader import read_steps
from everturn.history.transcript import Transcript
from everturn.logs import get_logger
from everturn.settings import Settings
from everturn.storage.artifacts import Artifacts
from everturn.storage.external import delete_stored

GONE_SECONDS: Final = 10.0
"""How long the server is given to delete histories, which it does by and by. One that has just ended is left until it
has written down that its end is dealt with: half a minute, as a server comes."""

_log = get_logger("everturn.deletion")

Claims = dict[str, set[tuple[tuple[str, str], ...]]]
"""Payloads in external storage, by the name of their driver."""


@dataclass(frozen=True)
class Fork:
    """A conversation that was forked from one that is to be deleted."""

    id: str
    needs: bool
    """The beginning that it shares is in the other one's history: it can't be read without."""


@dataclass
class Belongings:
    """What belongs to a conversation."""

    id: str
    runs: dict[str, list[str]] = field(default_factory=dict)
    """The ids of their runs, by the id of the conversation: its own, and those of the agents that it asked."""
    running: set[str] = field(default_factory=set)
    """Those that are not over."""
    asked_by: str = ""
    """The conversation that this one answers, if that is still there."""
    forks: list[Fork] = field(default_factory=list)
    claims: Claims = field(default_factory=dict)

    @property
    def conversations(self) -> list[str]:
        return list(self.runs)

    @property
    def payloads(self) -> int:
        return sum(map(len, self.claims.values()))


@dataclass(frozen=True)
class Deleted:
    """What was deleted."""

    conversations: tuple[str, ...] = ()
    """The conversation, the agents' that it asked, and its forks if they were asked for."""
    runs: int = 0
    """Histories."""
    artifacts: int = 0
    payloads: int = 0
    """In external storage."""
    left: tuple[str, ...] = ()
    """What could not be deleted, in words."""


async def delete_all(
    client: Client,
    conversation_id: str,
    *,
    forks: bool = False,
    terminate: bool = False,
    artifacts: Artifacts | Path | str | None = None,
) -> Deleted:
    """As `Conversation.delete`. Raises RPCError."""
    kept_at = artifacts or Settings.load().artifacts
    opened = Artifacts.at(kept_at) if isinstance(kept_at, str | Path) else kept_at
    found = [await find_belongings(client, conversation_id)]
    for one in found:  # it grows: forks have forks
        if forks:
            ids = {other.id for other in found}
            found += [await find_belongings(client, fork.id) for fork in one.forks if fork.id not in ids]
    for one in found:
        check(one, forks=forks, terminate=terminate)
    done = [await delete(client, one, artifacts=opened) for one in reversed(found)]
    return Deleted(
        conversations=tuple(name for one in reversed(done) for name in one.conversations),
        runs=sum(one.runs for one in done),
        artifacts=sum(one.artifacts for one in done),
        payloads=sum(one.payloads for one in done),
        left=tuple(text for one in done for text in one.left),
    )


async def find_belongings(client: Client, conversation_id: str) -> Belongings:
    """What there is. Reads the histories, and needs no key for what is in them. Raises RPCError."""
    found = Belongings(conversation_id)
    todo = [conversation_id]
    while todo:
        one = todo.pop(0)
        if one in found.runs:
            continue
        runs = await runs_of(client, one)
        if not runs and one != conversation_id:
            continue
        found.runs[one] = runs
        for run in runs:
            async for event in events_of(client, one, run):
                todo += children_of(event)
                _note_claims(event, found.claims)
                if one == conversation_id and event.event_id == 1:
                    found.asked_by = await _parent(client, event) or found.asked_by
            if await _is_running(client, one, run):
                found.running.add(one)
    found.forks = [fork async for fork in _forks(client, found.runs.keys())]
    return found


def check(found: Belongings, *, forks: bool, terminate: bool) -> None:
    """Raises Refused for what is not to be deleted so."""
    name = repr(found.id)
    if found.asked_by:
        raise Refused(
            f"Conversation {name} answers a call of {found.asked_by!r}, whose history holds its answer.",
            cure=f"Delete {found.asked_by!r}: that deletes this one, too.",
        )
    if found.running and not terminate:
        running = ", ".join(map(repr, sorted(found.running)))
        raise Refused(
            f"Conversation {name} can't be deleted: {running} still runs.",
            cure="Close it first (`everturn close`, or close()); or terminate it, with --terminate or "
            "terminate=True. A running tool may then still take effect.",
        )
    if not forks and (bound := [fork.id for fork in found.forks if fork.needs]):
        raise Refused(
            f"{', '.join(map(repr, bound))} can't be read without the history of {name}: they are forks of it.",
            cure="Start a worker for the forks: they copy what they need at their next step. "
            "Or delete them, too: --forks or forks=True.",
        )


async def delete(client: Client, found: Belongings, *, artifacts: Artifacts | None) -> Deleted:
    """Deletes it. Raises RPCError and what the stores raise; the same again then goes on."""
    ids = found.conversations
    for running in sorted(found.running):
        await _terminate(client, running)
    kept = stored = 0
    left: list[str] = []
    if artifacts is not None:
        kept = sum([await asyncio.to_thread(artifacts.delete, one) for one in ids])
    if (storage := client.data_converter.external_storage) is not None:
        for driver in storage.drivers:
            claims = [StorageDriverClaim(dict(one)) for one in found.claims.pop(driver.name(), ())]
            count, trouble = await delete_stored(driver, claims, owners=ids)
            stored += count
            left += [trouble] if trouble else []
    left += [
        f"{len(claims)} payloads in the external storage {driver!r}, which is not set up here"
        for driver, claims in found.claims.items()
    ]
    runs = [(one, run) for one in reversed(ids) for run in found.runs[one]]  # agents first: who asked them names them
    taken = [one for one in runs if await _delete_run(client, *one)]
    if waited := await _still_there(client, runs):
        left.append(f"{waited} of the histories: the server has accepted that and deletes them within minutes")
    gone = tuple(one for one in ids if one in dict(taken))
    _log.info("conversation.deleted", conversations=gone, runs=len(taken), artifacts=kept, payloads=stored)
    return Deleted(gone, len(taken), kept, stored, tuple(left))


# ---------------------------------------------------------------- runs


async def runs_of(client: Client, conversation_id: str) -> list[str]:
    """The ids of all runs that there are, the latest last: its lives before a revival, and what was reset, too."""
    query = f"WorkflowId = {quoted(conversation_id)} AND WorkflowType = {quoted(names.CONVERSATION)}"
    runs = [one.run_id async for one in client.list_workflows(query)]
    runs.reverse()
    # The index lags: what is newest is known by itself, and says what came before it.
    run = await _latest(client, conversation_id)
    chain: list[str] = []
    while run and run not in chain:
        chain.insert(0, run)
        run = await _run_before(client, conversation_id, run)
    return [one for one in runs if one not in chain] + chain


async def _latest(client: Client, conversation_id: str) -> str:
    described = await _describe(client, conversation_id, "")
    return "" if described is None else str(described.workflow_execution_info.execution.run_id)


async def _run_before(client: Client, conversation_id: str, run: str) -> str:
    async for event in events_of(client, conversation_id, run, page_size=1):
        began = event.workflow_execution_started_event_attributes
        reset_from = began.original_execution_run_id
        return began.continued_execution_run_id or (reset_from if reset_from != run else "")
    return ""


async def _is_running(client: Client, conversation_id: str, run: str) -> bool:
    described = await _describe(client, conversation_id, run)
    running = WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_RUNNING
    return described is not None and described.workflow_execution_info.status == running


async def _describe(client: Client, conversation_id: str, run: str) -> Any:
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
    """Of a run; none if it is gone."""
    handle = client.get_workflow_handle(conversation_id, run_id=run)
    try:
        async for event in handle.fetch_history_events(page_size=page_size):
            yield event
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise


async def _terminate(client: Client, conversation_id: str) -> None:
    try:
        await client.get_workflow_handle(conversation_id).terminate(reason="it is deleted")
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:  # it ended meanwhile
            raise


async def _delete_run(client: Client, conversation_id: str, run: str) -> bool:
    """Whether that deletes a history; else somebody else was quicker."""
    execution = WorkflowExecution(workflow_id=conversation_id, run_id=run)
    request = DeleteWorkflowExecutionRequest(namespace=client.namespace, workflow_execution=execution)
    try:
        await client.workflow_service.delete_workflow_execution(request)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return False
    return True


async def _still_there(client: Client, runs: Sequence[tuple[str, str]]) -> int:
    """How many of these the server still has, once it has been given its time."""
    until = time.monotonic() + GONE_SECONDS
    while runs := [one for one in runs if await _describe(client, *one) is not None]:
        if time.monotonic() > until:
            break
        await asyncio.sleep(0.1)
    return len(runs)


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
    described = await _describe(client, asked.workflow_id, asked.run_id)
    ours = described is not None and described.workflow_execution_info.type.name == names.CONVERSATION
    return asked.workflow_id if ours else ""


async def _forks(client: Client, ids: Any) -> AsyncIterator[Fork]:
    """Every conversation's memo says what it was forked from: the index has no better."""
    seen: set[str] = set()
    async for one in client.list_workflows(f"WorkflowType = {quoted(names.CONVERSATION)}"):
        if one.id in seen or one.id in ids or names.FORKED_FROM not in one.raw_info.memo.fields:
            continue
        if from_json(one.raw_info.memo.fields[names.FORKED_FROM].data) in ids:
            seen.add(one.id)
            yield Fork(one.id, needs=await _needs(client, one.id, ids))


async def _needs(client: Client, conversation_id: str, ids: Any) -> bool:
    """Whether some of its transcript is in a history of these, as far as it can be read."""
    try:
        return await _leads_to(client, conversation_id, ids)
    except InvalidSetting:
        return True


async def _leads_to(client: Client, conversation_id: str, ids: Any) -> bool:
    run, seen = await _latest(client, conversation_id), set[tuple[str, str]]()
    while run and (conversation_id, run) not in seen:
        seen.add((conversation_id, run))
        transcript = Transcript()
        async for step in read_steps(client, conversation_id, run_id=run):
            transcript.take(step)
        if not isinstance(earlier := transcript.earlier, InRun):
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
