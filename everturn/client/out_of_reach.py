"""What erasing a conversation does not reach, though it has a part of what was said: the schedule that started it, the
application's own workflows and Nexus operations, and the namespace's archives.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import ArchivalState
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.namespace.v1 import NamespaceConfig
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.converter import PayloadConverter
from temporalio.service import RPCError, RPCStatusCode

from everturn import names
from everturn.client.runs import describe_run
from everturn.history import event_types

_SCHEDULED_BY: Final = "TemporalScheduledById"


@dataclass(frozen=True)
class OutOfReach:
    """What is no conversation, and has a part of what was said in one: the application's own workflows, schedules and
    Nexus operations. Erasing a conversation does not reach it, and says so."""

    words: str
    """What it is, and what it has."""
    workflow: str = ""
    """Its id, if it is a workflow of this namespace."""
    run: str = ""
    """Empty: the latest."""


def named_in(event: HistoryEvent, *, conversation_id: str) -> Iterator[OutOfReach]:
    """What this event of the conversation names."""
    match event.event_type:
        case event_types.WORKFLOW_EXECUTION_STARTED:
            began = event.workflow_execution_started_event_attributes
            yield from _outside_workflow(
                began.parent_workflow_execution, f"asked {conversation_id}: it has the message and the answer"
            )
            if (schedule_payload := began.search_attributes.indexed_fields.get(_SCHEDULED_BY)) is not None:
                schedule = PayloadConverter.default.from_payload(schedule_payload)
                yield OutOfReach(f"schedule {schedule}, which started {conversation_id}: it has the message.")
        case event_types.WORKFLOW_EXECUTION_SIGNALED:
            sender = event.workflow_execution_signaled_event_attributes.external_workflow_execution
            yield from _outside_workflow(sender, f"sent signals to {conversation_id}: it has what they said")
        case event_types.SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED:
            recipient = event.signal_external_workflow_execution_initiated_event_attributes.workflow_execution
            yield from _outside_workflow(
                recipient, f"was told when calls of {conversation_id} waited: it has their arguments"
            )
        case event_types.NEXUS_OPERATION_SCHEDULED:
            called = event.nexus_operation_scheduled_event_attributes
            operation = f"{called.service}.{called.operation} at the endpoint {called.endpoint}"
            yield OutOfReach(
                f"Nexus operation {operation}, which {conversation_id} called: it was given the call's arguments."
            )


def _outside_workflow(execution: WorkflowExecution, did: str) -> Iterator[OutOfReach]:
    if execution.workflow_id:
        words = f"workflow {execution.workflow_id}, which {did}."
        yield OutOfReach(words, execution.workflow_id, execution.run_id)


async def still_there(client: Client, named: Iterable[OutOfReach]) -> list[str]:
    """In words, each once, without workflows that the server has no longer, and without everturn's own."""
    words_by_name: dict[str, str] = {}
    for outside in dict.fromkeys(named):
        name = outside.workflow or outside.words
        if name not in words_by_name and await _is_there(client, outside):
            words_by_name[name] = outside.words
    return list(words_by_name.values())


async def _is_there(client: Client, outside: OutOfReach) -> bool:
    if not outside.workflow:
        return True
    described = await describe_run(client, outside.workflow, outside.run)
    return described is not None and described.workflow_execution_info.type.name not in names.ON_WORKERS


async def find_archives(client: Client) -> tuple[str, ...]:
    """Where the server may have copied the histories to, in words."""
    try:
        described = await client.workflow_service.describe_namespace(
            DescribeNamespaceRequest(namespace=client.namespace), retry=True
        )
    except RPCError as error:
        if error.status is not RPCStatusCode.PERMISSION_DENIED:
            raise
        return ("It is not known whether the namespace archives histories: these credentials may not ask.",)
    return archives_of(described.config)


def archives_of(config: NamespaceConfig) -> tuple[str, ...]:
    """Where a namespace archives workflows that have ended, in words."""
    enabled = ArchivalState.ARCHIVAL_STATE_ENABLED
    archives = []
    if config.history_archival_state == enabled:
        archives.append(
            f"Temporal's archive of histories at {config.history_archival_uri}: what had ended may be there."
        )
    if config.visibility_archival_state == enabled:
        archives.append(
            f"Temporal's archive of its index at {config.visibility_archival_uri}: what had ended is listed."
        )
    return tuple(archives)
