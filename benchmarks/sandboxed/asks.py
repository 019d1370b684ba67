"""A workflow that asks an agent, which its file defines."""

from temporalio import workflow

import everturn
from everturn import Agent, tool


@tool
def look_up(order_id: str) -> str:
    """What was ordered."""
    return order_id


clerk = Agent("clerk", model="openai:gpt-5.5", tools=[look_up])


@workflow.defn
class Asks:
    @workflow.run
    async def run(self) -> str:
        return (await everturn.workflow.ask(clerk, "What is order 81?")).text
