"""The agent loop as one writes it first: it works, and its history grows with the square of the turns."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    import httpx

from benchmarks import work

LIMIT = timedelta(seconds=60)
Messages = list[dict[str, Any]]


class Model:
    def __init__(self) -> None:
        self.http = httpx.AsyncClient(base_url=os.environ["SCRIPTED_BASE_URL"], timeout=60)

    @activity.defn
    async def ask_model(self, messages: Messages) -> dict[str, Any]:
        body = {"model": "demo", "messages": messages, "tools": [work.TOOL]}
        answer = await self.http.post("/chat/completions", json=body)
        answer.raise_for_status()
        message: dict[str, Any] = answer.json()["choices"][0]["message"]
        return message


@activity.defn
async def lookup(number: int) -> str:
    return work.looked_up(number)


@workflow.defn
class Naive:
    @workflow.run
    async def run(self, said: str) -> str:
        messages: Messages = [{"role": "user", "content": said}]
        while True:
            message = await workflow.execute_activity_method(Model.ask_model, messages, start_to_close_timeout=LIMIT)
            messages.append(message)
            if not message.get("tool_calls"):
                return str(message["content"])
            for call in message["tool_calls"]:
                arguments = json.loads(call["function"]["arguments"])
                result = await workflow.execute_activity(lookup, arguments["number"], start_to_close_timeout=LIMIT)
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})


async def serve(address: str) -> None:
    client = await Client.connect(address)
    await Worker(client, task_queue="naive", workflows=[Naive], activities=[Model().ask_model, lookup]).run()
