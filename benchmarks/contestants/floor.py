"""The floor: what Temporal itself costs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import Worker

from benchmarks import work

LIMIT = timedelta(seconds=60)


@activity.defn
async def ask_model(turn: int) -> dict[str, Any]:
    return work.call_of(turn)


@activity.defn
async def lookup(number: int) -> str:
    return work.looked_up(number)


@workflow.defn
class Floor:
    @workflow.run
    async def run(self, said: str) -> str:
        turns, calls = work.turns_of(said), work.calls_of(said)
        for turn in range(turns):
            await workflow.execute_activity(ask_model, turn, start_to_close_timeout=LIMIT)
            looks = [workflow.start_activity(lookup, turn, start_to_close_timeout=LIMIT) for _ in range(calls)]
            for look in looks:
                await look
        await workflow.execute_activity(ask_model, turns, start_to_close_timeout=LIMIT)
        return work.LAST_WORDS


async def serve(address: str) -> None:
    client = await Client.connect(address)
    await Worker(client, task_queue="floor", workflows=[Floor], activities=[ask_model, lookup]).run()
