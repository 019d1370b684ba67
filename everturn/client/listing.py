"""Lists and counts conversations by what Temporal's visibility store says, which lags by a second or so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, get_args

import temporalio.client
from pydantic import JsonValue
from temporalio.client import WorkflowExecution
from temporalio.common import SearchAttributeKey
from temporalio.service import RPCError, RPCStatusCode

from everturn import names
from everturn.client.stuck import (
    STUCK,
    QueueVersions,
    failing_task_trouble,
    may_be_stuck_query,
    not_stuck_query,
    stuck_query,
)
from everturn.payloads import BATCHED_STATUS, StateName
from everturn.temporal.any_status import OPEN_QUERY, OVER_QUERY, held_up, is_over, status_name
from everturn.temporal.filter_values import quoted, quoted_time
from everturn.tenants.metadata import search_keyword

STATES: Final[tuple[str, ...]] = get_args(StateName)

_INDEXED: Final = (*STATES, BATCHED_STATUS)

STATUSES: Final = (*_INDEXED, STUCK)
"""The statuses that a list can be filtered by."""

# Runs that were continued as new are left out: only the newest run of a chain is listed.
# So are reruns: they did not happen.
_CONVERSATIONS: Final = (
    f"WorkflowType = '{names.CONVERSATION}' AND ExecutionStatus != 'ContinuedAsNew' "
    f"AND WorkflowId NOT STARTS_WITH '{names.RERUN}'"
)

_UNFINISHED: Final = f"({names.EVERTURN_STATUS} IS NULL OR {names.EVERTURN_STATUS} != 'done')"


@dataclass(frozen=True)
class ListedConversation:
    """A conversation in a list. Fields are empty if the namespace lacks everturn's search attributes."""

    id: str
    status: str
    """A state, such as 'awaiting_approval'; 'batched' in place of 'running' while it waits for a provider's batch. If
    Temporal ended it: Temporal's status, such as 'terminated'. 'stuck' if its workflow task fails again and again, or
    no worker runs its version."""
    agent: str
    model: str
    """`provider:name`."""
    tokens: int
    """Input and output, so far."""
    started_at: datetime
    """When its latest run began."""
    ended_at: datetime | None
    """None while it runs."""
    trouble: str = ""
    """Why it is 'stuck', and what to do; or who has paused its workflow in Temporal, and what sets it going again."""
    tenant: str | None = None
    """Whom it is for; None also if its memo can't be read here."""
    metadata: Mapping[str, JsonValue] = field(default_factory=dict)
    """What it was started with."""
    parent: str = ""
    """The id of the workflow that started it: the conversation whose call it answers, if it is an agent's."""


def build_query(
    *,
    status: str | None = None,
    agent: str | None = None,
    labels: Mapping[str, JsonValue] | None = None,
    search: str = "",
    started_after: datetime | None = None,
    started_before: datetime | None = None,
    ended: bool | None = None,
    problems: bool = True,
) -> str:
    """The filter in Temporal's list filter language. `problems`: whether the server indexes failing workflow
    tasks, as for `count_by_status`."""
    wanted = [_CONVERSATIONS]
    wanted += [f"{names.EVERTURN_METADATA} = {quoted(search_keyword(*label))}" for label in (labels or {}).items()]
    if agent is not None:
        agents = f"{names.EVERTURN_AGENT} = {quoted(agent)}"
        if "@" not in agent:  # of any version
            agents += f" OR {names.EVERTURN_AGENT} STARTS_WITH {quoted(agent + '@')}"
        wanted.append(f"({agents})")
    if search:
        beginnings = ("WorkflowId", names.EVERTURN_AGENT, names.EVERTURN_MODEL)
        wanted.append(f"({' OR '.join(f'{name} STARTS_WITH {quoted(search)}' for name in beginnings)})")
    wanted += [
        f"StartTime {sign} {quoted_time(moment)}"
        for sign, moment in ((">=", started_after), ("<", started_before))
        if moment is not None
    ]
    if ended is not None:
        wanted.append(OVER_QUERY if ended else OPEN_QUERY)
    if status == STUCK:
        wanted += ["ExecutionStatus = 'Running'", may_be_stuck_query(problems=problems)]
    elif status == "paused":
        wanted += [f"({names.EVERTURN_STATUS} = 'paused' OR ExecutionStatus != 'Running')", OPEN_QUERY]
    elif status is not None:
        wanted.append(f"{names.EVERTURN_STATUS} = {quoted(status)}")
        if status != "done":
            # A terminated conversation keeps its last state in the index.
            wanted.append("ExecutionStatus = 'Running'")
    return " AND ".join(wanted)


def read_listed(execution: WorkflowExecution) -> ListedConversation:
    attributes = execution.typed_search_attributes
    closed = is_over(execution)
    obstacle = held_up(execution)
    temporal_status = status_name(execution.raw_info.status)
    state = attributes.get(SearchAttributeKey.for_keyword(names.EVERTURN_STATUS)) or temporal_status
    trouble = "" if closed else failing_task_trouble(execution)
    status = STUCK if trouble else state
    if obstacle or (closed and state != "done"):
        status = temporal_status
    if obstacle:
        trouble = " ".join(obstacle)
    return ListedConversation(
        id=execution.id,
        status=status,
        trouble=trouble,
        agent=attributes.get(SearchAttributeKey.for_keyword(names.EVERTURN_AGENT)) or "",
        model=attributes.get(SearchAttributeKey.for_keyword(names.EVERTURN_MODEL)) or "",
        tokens=attributes.get(SearchAttributeKey.for_int(names.EVERTURN_TOKENS)) or 0,
        started_at=execution.start_time,
        ended_at=execution.close_time,
        parent=execution.parent_id or "",
    )


async def read_labelled(execution: WorkflowExecution) -> ListedConversation:
    """As `read_listed`, with the tenant and the metadata from its memo."""
    conversation = read_listed(execution)
    if not {"tenant", "metadata"} & set(execution.raw_info.memo.fields):
        return conversation
    try:
        memo = await execution.memo()
    except Exception:  # noqa: BLE001 - codecs raise all kinds: who lacks the key sees the rest
        return conversation
    tenant = memo.get("tenant")
    metadata = memo.get("metadata")
    return replace(
        conversation,
        tenant=tenant if isinstance(tenant, str) else None,
        metadata=metadata if isinstance(metadata, dict) else {},
    )


async def mark_stuck(
    conversation: ListedConversation, execution: WorkflowExecution, versions: QueueVersions
) -> ListedConversation:
    """Returns the conversation, marked as stuck if it is pinned to a version that no worker runs."""
    if conversation.ended_at or conversation.trouble:
        return conversation
    if trouble := await versions.find_trouble(execution):
        return replace(conversation, status=STUCK, trouble=trouble)
    return conversation


async def found_by(temporal: temporalio.client.Client, **wanted: Any) -> AsyncIterator[WorkflowExecution]:
    """What `build_query` finds. A server before 1.30 does not index failing workflow tasks: of those that are stuck, it
    has only the ones that are pinned to a version. Raises RPCError."""
    with_problems = True
    while True:
        try:
            async for execution in temporal.list_workflows(build_query(**wanted, problems=with_problems)):
                yield execution
            return
        except RPCError as error:
            unknown = error.status is RPCStatusCode.INVALID_ARGUMENT
            if not (unknown and with_problems and wanted.get("status") == STUCK):
                raise
            with_problems = False


async def count_by_status(
    temporal: temporalio.client.Client, *, agent: str | None = None, problems: bool = True, **filters: Any
) -> dict[str, int]:
    """The number of conversations of each status that has any, with the statuses of `read_listed` and of `mark_stuck`.
    `problems`: whether the server indexes failing workflow tasks (since 1.30) and versions. `filters`: as for
    `build_query`.

    Temporal groups counts by its own ExecutionStatus only ("'GROUP BY' clause is not supported for search attribute
    EverturnStatus", server 1.32), so each state is a count of its own. Raises RPCError, INVALID_ARGUMENT if an
    agent is asked for and the namespace has no search attribute for it.
    """
    everything = build_query(agent=agent, **filters)
    try:
        queries = {state: build_query(status=state, agent=agent, **filters) for state in _INDEXED}
        if problems:
            dead = await QueueVersions(temporal).find_dead(everything)
            for state in _INDEXED:
                if state != "done":
                    queries[state] += f" AND {not_stuck_query(dead)}"
            queries[STUCK] = f"{everything} AND ExecutionStatus = 'Running' AND {stuck_query(dead)}"
        of_state, other_counts = await asyncio.gather(
            asyncio.gather(*map(temporal.count_workflows, queries.values())),
            temporal.count_workflows(f"{everything} AND {_UNFINISHED} GROUP BY ExecutionStatus"),
        )
    except RPCError as error:
        if error.status is RPCStatusCode.INVALID_ARGUMENT and problems:
            return await count_by_status(temporal, agent=agent, problems=False, **filters)
        if error.status is not RPCStatusCode.INVALID_ARGUMENT or agent is not None:
            raise
        # Without everturn's search attributes, there are only Temporal's own statuses, as in a list.
        return _by_temporal(await temporal.count_workflows(f"{everything} GROUP BY ExecutionStatus"))
    counts = {status: number.count for status, number in zip(queries, of_state, strict=True)}
    rest_by_status = _by_temporal(other_counts)
    held = rest_by_status.pop("paused", 0)  # by an operator: they are in counts["paused"], too
    # Conversations that run and have no state yet count as running.
    stateless = (
        rest_by_status.pop("running", 0) - sum(number for state, number in counts.items() if state != "done") + held
    )
    counts["running"] += max(stateless, 0)
    return {status: number for status, number in {**counts, **rest_by_status}.items() if number}


def _by_temporal(counts: temporalio.client.WorkflowExecutionCount) -> dict[str, int]:
    """Counts by lower-case status: 'TimedOut' becomes 'timed_out'."""
    return {_snake_case(str(group.group_values[0])): group.count for group in counts.groups}


def _snake_case(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")
