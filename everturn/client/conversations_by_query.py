"""The conversations that a query finds, which is a filter in Temporal's own language; and a sample of them."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import temporalio.client
from temporalio.client import WorkflowExecution
from temporalio.service import RPCError, RPCStatusCode

from everturn import names
from everturn.errors import Refused
from everturn.temporal.filter_values import quoted

RUNNING = "ExecutionStatus = 'Running'"
"""As people write it. Filters of our own are OPEN_QUERY, which has those that an operator has paused."""


async def find_matching(
    temporal: temporalio.client.Client, query: str, *, also: str = ""
) -> AsyncIterator[WorkflowExecution]:
    """Each run of a conversation that the filter finds, newest first. `also`: a second filter, of everturn's. Raises
    Refused if the filter is not valid."""
    if not query.strip():
        raise Refused("The query is empty.", cure=f'For all that run, write --query "{RUNNING}".')
    filters = [f"WorkflowType = {quoted(names.CONVERSATION)}", also, f"({query})"]
    try:
        async for execution in temporal.list_workflows(" AND ".join(filter(None, filters))):
            # Brackets in the filter may have cancelled ours. Reruns did not happen.
            if execution.workflow_type == names.CONVERSATION and not execution.id.startswith(names.RERUN):
                yield execution
    except RPCError as error:
        if error.status is not RPCStatusCode.INVALID_ARGUMENT:
            raise
        raise Refused(
            f"Temporal can't read the query {query!r}: {error.message}",
            cure="""Write it as for `temporal workflow list --query`: "EverturnAgent = 'clerk'".""",
        ) from None


async def draw_sample(
    executions: AsyncIterator[WorkflowExecution], sample: int | None
) -> AsyncIterator[WorkflowExecution]:
    """A random sample of this many, each as likely as any other; None: all. Holds only the sample in memory."""
    if sample is None:
        async for execution in executions:
            yield execution
        return
    drawn: list[WorkflowExecution] = []
    count = 0
    async for execution in executions:
        count += 1
        if len(drawn) < sample:
            drawn.append(execution)
        elif (place := random.randrange(count)) < sample:
            drawn[place] = execution
    for execution in drawn:
        yield execution
