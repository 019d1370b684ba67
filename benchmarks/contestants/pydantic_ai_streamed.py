"""pydantic-ai's durable agent, streamed as its documentation sets it up."""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow
from temporalio.client import Client
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    from pydantic_ai import Agent  # type: ignore[import-not-found]
    from pydantic_ai.durable_exec.temporal import (  # type: ignore[import-not-found]
        AgentEventStream,
        PydanticAIPlugin,
        PydanticAIWorkflow,
        TemporalDurability,
    )

    from benchmarks.contestants.pydantic_ai import lookup, model

streamed = Agent(model, name="streamed", tools=[lookup], capabilities=[TemporalDurability(event_stream_topic="events")])


@workflow.defn
class PydanticAiStreamed(PydanticAIWorkflow):  # type: ignore[misc]
    __pydantic_ai_agents__ = [streamed]  # noqa: RUF012 - the library's own way to register it

    @workflow.init
    def __init__(self, _: str) -> None:
        # Its own subscriber would say that it has seen the end; ours does not, and is not waited for.
        self.events = AgentEventStream(drain_timeout=timedelta(milliseconds=300))

    @workflow.run
    async def run(self, said: str) -> str:
        async with self.events:
            result = await streamed.run(said)
        return str(result.output)


async def serve(address: str) -> None:
    client = await Client.connect(address, plugins=[PydanticAIPlugin()])
    await Worker(client, task_queue="pydantic_ai_streamed", workflows=[PydanticAiStreamed]).run()
