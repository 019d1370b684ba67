"""The tools that an agent's MCP servers have now: for a turn, which waits for them, and for a call of one."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from everturn import names
from everturn.activities import patience, retry_delays
from everturn.activities.mcp_toolsets import NotListed, Toolsets
from everturn.agent import Agent
from everturn.logs import get_logger

CURE = "Start it, or set McpServer(optional=True) to go on without it. `resume` asks again."
WITHOUT = "With McpServer(optional=True), turns go on without it. `resume` asks again."
"""After a cure that is known."""

ONCE_TRIES = 6
"""How often a run-once call asks for the list, as Temporal does not try it again: half a minute in all."""
FIRST_WAIT_SECONDS = 0.5

LONGEST_WAIT = timedelta(seconds=30)

_log = get_logger("everturn.mcp")


class NeverListed(Exception):
    """The call did not run, and its patience is over; the message is for the model."""


async def for_turn(toolsets: Toolsets, agent: Agent) -> Agent:
    """The agent with all its tools. Raises ApplicationError: to be tried again, or to stall when patience is over."""
    try:
        return await toolsets.complete_agent(agent)
    except NotListed as error:
        delay = retry_delays.retry_delay(None, attempt=activity.info().attempt, longest=LONGEST_WAIT)
        is_retried = patience.spend(delay, error.server.patience)
        cure = CURE
        if error.cure:
            cure = f"{error.cure} {WITHOUT}"
        raise ApplicationError(
            str(error),
            {"cure": cure},
            type=names.NOT_LISTED,
            non_retryable=not is_retried,
            next_retry_delay=delay if is_retried else None,
            category=ApplicationErrorCategory.BENIGN,
        ) from None


async def for_call(toolsets: Toolsets, agent: Agent, name: str, *, may_have_run: bool = False) -> Agent:
    """The agent with the tool of this name, if any of its servers has it. Raises ApplicationError to be tried again,
    and NeverListed when patience is over. `may_have_run`: it may have run before this activity."""
    info = activity.info()
    runs_once = info.retry_policy is not None and info.retry_policy.maximum_attempts == 1
    for attempt in range(ONCE_TRIES if runs_once else 1):
        if attempt:
            await asyncio.sleep(FIRST_WAIT_SECONDS * 2 ** (attempt - 1))
        try:
            return await toolsets.complete_agent(agent, wanted=name)
        except NotListed as error:
            unreachable = error
    delay = retry_delays.retry_delay(None, attempt=info.attempt, longest=LONGEST_WAIT)
    if not runs_once and patience.spend(delay, unreachable.server.patience):
        raise ApplicationError(
            f"{name} has not run: {unreachable}",
            type=names.NOT_LISTED,
            next_retry_delay=delay,
            category=ApplicationErrorCategory.BENIGN,
        )
    if may_have_run or info.attempt > 1:
        raise NeverListed(f"{name} could not be run again: {unreachable} It may have run before.")
    raise NeverListed(f"{name} did not run: {unreachable}")
