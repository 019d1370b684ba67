"""pydantic-ai's durable agent, as its documentation sets it up."""

from __future__ import annotations

import os

from temporalio import workflow
from temporalio.client import Client
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    from pydantic_ai import Agent  # type: ignore[import-not-found]
    from pydantic_ai.durable_exec.temporal import (  # type: ignore[import-not-found]
        PydanticAIPlugin,
        PydanticAIWorkflow,
        TemporalDurability,
    )
    from pydantic_ai.models.openai import OpenAIChatModel  # type: ignore[import-not-found]
    from pydantic_ai.providers.openai import OpenAIProvider  # type: ignore[import-not-found]
    from pydantic_ai.usage import UsageLimits  # type: ignore[import-not-found]

from benchmarks import work


async def lookup(number: int) -> str:
    """Look up a number."""
    return work.looked_up(number)


model = OpenAIChatModel("demo", provider=OpenAIProvider(base_url=os.environ["SCRIPTED_BASE_URL"], api_key="none"))
clerk = Agent(model, name="clerk", tools=[lookup], capabilities=[TemporalDurability()])


@workflow.defn
class PydanticAi(PydanticAIWorkflow):  # type: ignore[misc]
    __pydantic_ai_agents__ = [clerk]  # noqa: RUF012 - the library's own way to register it

    @workflow.run
    async def run(self, said: str) -> str:
        result = await clerk.run(said, usage_limits=UsageLimits(request_limit=None))
        return str(result.output)


async def serve(address: str) -> None:
    client = await Client.connect(address, plugins=[PydanticAIPlugin()])
    await Worker(client, task_queue="pydantic_ai", workflows=[PydanticAi]).run()
