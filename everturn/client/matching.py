"""The conversations that a filter in Temporal's own language finds, and a sample of them."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import temporalio.client
from temporalio.client import WorkflowExecution
from temporalio.service import RPCError, RPCStatusCode

from everturn import names
from everturn.client.listing import quoted
from everturn.errors import Refused

RUNNING = "ExecutionStatus = 'Running'"
"""As people write it. Filters of our own are OPEN_QUERY, which has those that an operator has paused."""


async def matching(
    temporal: temporalio.client.Client, query: str, *, also: str = ""
) -> AsyncIterator[WorkflowExecution]:
    """Each run of a conversation that the filter finds, newest first. `also`: a second filter, of everturn's. Raises
    Refused if the filter is not valid."""
    if not query.strip():
        raise Refused("The query is empty.", cure=f'For all that run, write --query "{RUNNING}".')
    wanted = f"WorkflowType = {quoted(names.CONVERSATION)}" + (f" AND {also}" if also else "") + f" AND ({query})"
    try:
        async for one in temporal.list_workflows(wanted):
            # Brackets in the filter may have cancelled ours. Reruns did not happen.
            if one.workflow_type == names.CONVERSATION and not one.id.startswith(names.RERUN):
                yield one
    except RPCError as error:
        if error.status is not RPCStatusCode.INVALID_ARGUMENT:
            raise
        raise Refused(
            f"Temporal can't read the query {query!r}: {error.message}",
            cure="""Write it as for `temporal workflow list --query`: "EverturnAgent = 'clerk'".""",
        ) from None


async def sampled(found: AsyncIterator[WorkflowExecution], sample: int | None) -> AsyncIterator[WorkflowExecution]:
    """A random sample of this many, each as likely as any other; None: all. Holds only the sample in memory."""
    if sample is None:
        async for one in found:
            yield one
        return
    drawn: list[WorkflowExecution] = []
    count = 0
    async for one in found:
        count += 1
        if len(drawn) < sample:
            drawn.append(one)
        elif (place := random.randrange(count)) < sample:
            drawn[place] = one
    for one in drawn:
        yield one
