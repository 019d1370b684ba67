"""OpenAI's Agents SDK in Temporal's own plugin, as its documentation sets it up."""

from __future__ import annotations

import os
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    from agents import Agent, OpenAIProvider, RunConfig, Runner  # type: ignore[import-not-found]
    from openai import AsyncOpenAI
    from temporalio.openai_agents import OpenAIAgentsPlugin  # type: ignore[import-not-found]
    from temporalio.openai_agents.workflow import activity_as_tool  # type: ignore[import-not-found]

from benchmarks import work

LIMIT = timedelta(seconds=60)


@activity.defn
async def lookup(number: int) -> str:
    """Look up a number."""
    return work.looked_up(number)


@workflow.defn
class OpenaiAgents:
    @workflow.run
    async def run(self, said: str) -> str:
        clerk = Agent(name="clerk", model="demo", tools=[activity_as_tool(lookup, start_to_close_timeout=LIMIT)])
        config = RunConfig(tracing_disabled=True)
        result = await Runner.run(clerk, input=said, max_turns=100_000, run_config=config)
        return str(result.final_output)


async def serve(address: str) -> None:
    # Chat Completions, as everybody else here; nothing is exported.
    openai = AsyncOpenAI(base_url=os.environ["SCRIPTED_BASE_URL"], api_key="none")
    plugin = OpenAIAgentsPlugin(model_provider=OpenAIProvider(openai_client=openai, use_responses=False))
    client = await Client.connect(address, plugins=[plugin])
    await Worker(client, task_queue="openai_agents", workflows=[OpenaiAgents], activities=[lookup]).run()
