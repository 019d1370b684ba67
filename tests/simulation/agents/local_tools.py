"""Local tools that take long, that are tried again after a while, and tools that are tried within a workflow task since
they were quick so far."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from everturn import ToolContext, tool
from everturn.errors import Retry
from tests.simulation.agents.ledger import chance_at_hand, leave

LINGERS = (0.1, 3.0, 6.0, 20.0)
"""Seconds. A workflow task may take 5."""

LONGEST_SECONDS = 8.0


@tool(
    effect="read",
    local=True,
    timeout=timedelta(seconds=LONGEST_SECONDS),
    patience=timedelta(seconds=20),
)
async def linger(seconds: float, context: ToolContext) -> str:
    """Reads something near that is slow."""
    await asyncio.sleep(seconds)
    return leave("linger", context, seconds=seconds)


@tool(effect="read", local=True, timeout=timedelta(seconds=4), patience=timedelta(minutes=5))
async def waver(times: int, context: ToolContext) -> str:
    """Comes to something after some tries: some at once, some long after."""
    if context.attempt <= times:
        raise Retry("not yet", after=chance_at_hand().choice((None, 0.0, 1.0, 15.0)))
    return leave("waver", context, times=times)


@tool(effect="read", local="auto", timeout=timedelta(seconds=30))
async def glance(number: int, context: ToolContext) -> str:
    """Reads what is quick, and now and then is not."""
    await asyncio.sleep(chance_at_hand().choice((0.0,) * 8 + (0.7, 5.0)))
    if chance_at_hand().random() < 0.1:
        raise Retry("not yet")
    return leave("glance", context, number=number)


NEAR_TOOLS = (linger, waver, glance)
