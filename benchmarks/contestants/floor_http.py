"""The floor with the HTTP hop that no agent gets around, so that it can be told from a contestant's own cost."""

from __future__ import annotations

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


class Model:
    def __init__(self) -> None:
        self.http = httpx.AsyncClient(base_url=os.environ["SCRIPTED_BASE_URL"], timeout=60)

    @activity.defn
    async def ask_model(self, said: str, turn: int) -> dict[str, Any]:
        messages: list[dict[str, Any]] = [{"role": "user", "content": said}]
        for past in range(turn):
            messages += [work.call_of(past), work.result_of(past)]
        body = {"model": "demo", "messages": messages, "tools": [work.TOOL]}
        answer = await self.http.post("/chat/completions", json=body)
        answer.raise_for_status()
        message: dict[str, Any] = answer.json()["choices"][0]["message"]
        return message


@activity.defn
async def lookup(number: int) -> str:
    return work.looked_up(number)


@workflow.defn
class FloorHttp:
    @workflow.run
    async def run(self, said: str) -> str:
        turns = work.turns_of(said)
        for turn in range(turns):
            await workflow.execute_activity_method(Model.ask_model, args=[said, turn], start_to_close_timeout=LIMIT)
            await workflow.execute_activity(lookup, turn, start_to_close_timeout=LIMIT)
        await workflow.execute_activity_method(Model.ask_model, args=[said, turns], start_to_close_timeout=LIMIT)
        return work.LAST_WORDS


async def serve(address: str) -> None:
    client = await Client.connect(address)
    model = Model()
    await Worker(client, task_queue="floor_http", workflows=[FloorHttp], activities=[model.ask_model, lookup]).run()
