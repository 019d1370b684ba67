"""OpenAI's Agents SDK in Temporal's own plugin, streamed as its documentation sets it up."""

from __future__ import annotations

import os
from datetime import timedelta

from temporalio import workflow
from temporalio.client import Client
from temporalio.contrib.workflow_streams import WorkflowStream
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    from agents import Agent, OpenAIProvider, RunConfig, Runner  # type: ignore[import-not-found]
    from openai import AsyncOpenAI
    from temporalio.openai_agents import (  # type: ignore[import-not-found]
        ModelActivityParameters,
        OpenAIAgentsPlugin,
    )
    from temporalio.openai_agents.workflow import activity_as_tool  # type: ignore[import-not-found]

    from benchmarks.contestants.openai_agents import LIMIT, lookup


@workflow.defn
class OpenaiAgentsStreamed:
    @workflow.init
    def __init__(self, _: str) -> None:
        self.stream = WorkflowStream()

    @workflow.run
    async def run(self, said: str) -> str:
        clerk = Agent(name="clerk", model="demo", tools=[activity_as_tool(lookup, start_to_close_timeout=LIMIT)])
        config = RunConfig(tracing_disabled=True)
        result = Runner.run_streamed(clerk, input=said, max_turns=10, run_config=config)
        async for _ in result.stream_events():
            pass
        self.stream.detach_pollers()
        await workflow.wait_condition(workflow.all_handlers_finished)
        return str(result.final_output)


async def serve(address: str) -> None:
    openai = AsyncOpenAI(base_url=os.environ["SCRIPTED_BASE_URL"], api_key="none")
    plugin = OpenAIAgentsPlugin(
        model_params=ModelActivityParameters(
            start_to_close_timeout=LIMIT, heartbeat_timeout=timedelta(seconds=30), streaming_topic="events"
        ),
        model_provider=OpenAIProvider(openai_client=openai, use_responses=False),
    )
    client = await Client.connect(address, plugins=[plugin])
    await Worker(
        client, task_queue="openai_agents_streamed", workflows=[OpenaiAgentsStreamed], activities=[lookup]
    ).run()
