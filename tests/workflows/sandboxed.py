"""A user's workflow file, as Temporal's sandbox loads it: with agents and tools in it, and nothing said of imports."""

from __future__ import annotations

from temporalio import workflow

import everturn
from everturn import Agent, Limits, Text, tool


@tool
def look_up(order_id: str) -> str:
    """An order."""
    return f"order {order_id}"


agent = Agent("clerk", model="scripted:demo", tools=[look_up], limits=Limits(max_turns=3))


@workflow.defn
class Mine:
    @workflow.run
    async def run(self, text: str) -> str:
        # Late, too: what a user's code touches first in a run.
        return f"{agent.name} {Text(text=text).text} {everturn.ToolFailed.__name__}"
