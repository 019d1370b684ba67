"""A streamed turn as one writes it with what Temporal's SDK has for it: signals, batched each 100 ms."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.contrib.workflow_streams import WorkflowStream, WorkflowStreamClient
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    import httpx

    from benchmarks import work
    from benchmarks.contestants.naive import LIMIT, Messages, lookup

BATCH = timedelta(milliseconds=100)
"""As both peers have it; the SDK's own default is 2 s."""


class Model:
    def __init__(self) -> None:
        self.http = httpx.AsyncClient(base_url=os.environ["SCRIPTED_BASE_URL"], timeout=60)

    @activity.defn
    async def ask_model(self, messages: Messages) -> dict[str, Any]:
        body = {"model": "demo", "messages": messages, "tools": [work.TOOL], "stream": True}
        text, calls = "", list[dict[str, Any]]()
        stream = WorkflowStreamClient.from_within_activity(batch_interval=BATCH)
        topic = stream.topic("events", type=str)
        async with stream, self.http.stream("POST", "/chat/completions", json=body) as answer:
            async for line in answer.aiter_lines():
                if not line.startswith("data: {"):
                    continue
                for choice in json.loads(line[6:])["choices"]:
                    if piece := choice["delta"].get("content"):
                        text += piece
                        topic.publish(piece)
                    for call in choice["delta"].get("tool_calls", ()):
                        if "id" in call:
                            calls.append(call)
                        else:
                            calls[-1]["function"]["arguments"] += call["function"]["arguments"]
        return {"role": "assistant", "content": text or None, **({"tool_calls": calls} if calls else {})}


@workflow.defn
class Streams:
    @workflow.init
    def __init__(self, _: str) -> None:
        self.stream = WorkflowStream()

    @workflow.run
    async def run(self, said: str) -> str:
        messages: Messages = [{"role": "user", "content": said}]
        while True:
            message = await workflow.execute_activity_method(Model.ask_model, messages, start_to_close_timeout=LIMIT)
            messages.append(message)
            if not message.get("tool_calls"):
                break
            for call in message["tool_calls"]:
                arguments = json.loads(call["function"]["arguments"])
                result = await workflow.execute_activity(lookup, arguments["number"], start_to_close_timeout=LIMIT)
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
        self.stream.detach_pollers()
        await workflow.wait_condition(workflow.all_handlers_finished)
        return str(message["content"])


async def serve(address: str) -> None:
    client = await Client.connect(address)
    model = Model()
    await Worker(client, task_queue="workflow_streams", workflows=[Streams], activities=[model.ask_model, lookup]).run()
