"""Lists and counts conversations by what Temporal's visibility store says, which lags by a second or so."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime
from typing import Final, get_args

import temporalio.client
from temporalio.client import WorkflowExecution, WorkflowExecutionStatus
from temporalio.common import SearchAttributeKey
from temporalio.service import RPCError, RPCStatusCode

from everturn import names
from everturn.payloads import State

STATES: Final[tuple[str, ...]] = get_args(State)

# A run that went on as a new one is no conversation of its own: the newest run stands for the chain.
_CONVERSATIONS: Final = f"WorkflowType = '{names.CONVERSATION}' AND ExecutionStatus != 'ContinuedAsNew'"

_UNFINISHED: Final = f"({names.EVERTURN_STATUS} IS NULL OR {names.EVERTURN_STATUS} != 'done')"


@dataclass(frozen=True)
class Listed:
    """A conversation in a list. Fields are empty where the namespace lacks everturn's search attributes."""

    id: str
    status: str
    """A state, such as 'awaiting_approval'; for one that could not say how it ended Temporal's: 'terminated' ..."""
    agent: str
    model: str
    """`provider:name`."""
    tokens: int
    """Input and output, so far."""
    started_at: datetime
    """When its latest run began."""
    ended_at: datetime | None
    """None while it runs."""


def query(*, status: str | None = None, agent: str | None = None) -> str:
    """In Temporal's list filter language."""
    wanted = [_CONVERSATIONS]
    if agent is not None:
        wanted.append(f"{names.EVERTURN_AGENT} = {_quoted(agent)}")
    if status is not None:
        wanted.append(f"{names.EVERTURN_STATUS} = {_quoted(status)}")
        if status != "done":
            # One that was terminated could not change its state any more.
            wanted.append("ExecutionStatus = 'Running'")
    return " AND ".join(wanted)


def listed(execution: WorkflowExecution) -> Listed:
    attributes = execution.typed_search_attributes
    closed = execution.status not in (None, WorkflowExecutionStatus.RUNNING)
    temporal_status = execution.status.name.lower() if execution.status else "unknown"
    state = attributes.get(SearchAttributeKey.for_keyword(names.EVERTURN_STATUS)) or temporal_status
    return Listed(
        id=execution.id,
        status=temporal_status if closed and state != "done" else state,
        agent=attributes.get(SearchAttributeKey.for_keyword(names.EVERTURN_AGENT)) or "",
        model=attributes.get(SearchAttributeKey.for_keyword(names.EVERTURN_MODEL)) or "",
        tokens=attributes.get(SearchAttributeKey.for_int(names.EVERTURN_TOKENS)) or 0,
        started_at=execution.start_time,
        ended_at=execution.close_time,
    )


async def count(temporal: temporalio.client.Client, *, agent: str | None = None) -> dict[str, int]:
    """How many conversations there are of each status that `listed` would give them, without the zeros.

    Temporal groups counts by its own ExecutionStatus only ("'GROUP BY' clause is not supported for search attribute
    EverturnStatus", server 1.32), so each state is a count of its own. Raises RPCError, INVALID_ARGUMENT where an
    agent is asked for and the namespace has no search attribute for it.
    """
    everything = query(agent=agent)
    try:
        of_state, others = await asyncio.gather(
            asyncio.gather(*(temporal.count_workflows(query(status=state, agent=agent)) for state in STATES)),
            temporal.count_workflows(f"{everything} AND {_UNFINISHED} GROUP BY ExecutionStatus"),
        )
    except RPCError as error:
        if error.status is not RPCStatusCode.INVALID_ARGUMENT or agent is not None:
            raise
        # Without everturn's search attributes, Temporal's own words have to do, as in a list.
        return _by_temporal(await temporal.count_workflows(f"{everything} GROUP BY ExecutionStatus"))
    counts = {state: found.count for state, found in zip(STATES, of_state, strict=True)}
    rest = _by_temporal(others)
    # Those that run and have no state yet are running, too.
    stateless = rest.pop("running", 0) - sum(number for state, number in counts.items() if state != "done")
    counts["running"] += max(stateless, 0)
    return {status: number for status, number in {**counts, **rest}.items() if number}


def _by_temporal(found: temporalio.client.WorkflowExecutionCount) -> dict[str, int]:
    """By names like WorkflowExecutionStatus's: 'TimedOut' is 'timed_out'."""
    return {_snake(str(group.group_values[0])): group.count for group in found.groups}


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


def _quoted(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
