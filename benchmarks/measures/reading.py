"""What is read again of a history: by who waits for a reply, by a worker that lacks results, by a worker that is new.

Each is to cost the same however long the conversation is, or as little as a replay; so what is read is counted, too.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

from temporalio.service import WorkflowService

from benchmarks import work
from benchmarks.contestants import EVERTURN, everturn_client
from benchmarks.contestants.everturn import clerk
from benchmarks.measures import Column, Measured, Plan
from benchmarks.rig import Rig
from everturn import Agent, Client, Limits, Model, Worker

LONG_TURNS, AGAIN = 150, 10
CALLS, CALL_TURNS = 6, 30
COLD_CONVERSATIONS, COLD_TURNS = 60, 50
MUCH_BYTES = 64_000
OPEN = timedelta(hours=1)
METHODS = ("get_workflow_execution_history", "get_workflow_execution_history_reverse")


async def measure(rig: Rig, plan: Plan) -> Measured:  # noqa: ARG001 - as all measures are called
    rows: dict[str, dict[str, Any]] = {}
    async with rig.worker(EVERTURN):
        rows |= await _replies(rig)
    rows |= await _turns_with_many_calls(rig)
    rows |= await _cold_workers(rig)
    columns = [
        Column("cpu_ms", "CPU ms", better=None),
        Column("kb", "KB of history", better=None),
        Column("lacking", "turns that lack something", ".0%", better=None),
        Column("much", f"turns that read over {MUCH_BYTES // 1000} KB", ".0%", better=None),
    ]
    notes = [
        f"reply(): in the client, after {LONG_TURNS} turns. A turn with {CALLS} calls: with two workers on its queue. "
        f"A conversation: one more message after {COLD_TURNS} turns; all CPU of the worker, "
        f"for each of {COLD_CONVERSATIONS}."
    ]
    return Measured("What is read again", columns, rows, notes)


@contextmanager
def _counted() -> Iterator[list[int]]:
    """The bytes of each answer with a part of a history, of this process's clients."""
    sizes: list[int] = []
    plain = {name: getattr(WorkflowService, name) for name in METHODS}

    def counting(method: Any) -> Any:
        async def asked(service: Any, *args: Any, **options: Any) -> Any:
            answer = await method(service, *args, **options)
            sizes.append(answer.ByteSize())
            return answer

        return asked

    for name, method in plain.items():
        setattr(WorkflowService, name, counting(method))
    try:
        yield sizes
    finally:
        for name, method in plain.items():
            setattr(WorkflowService, name, method)


async def _replies(rig: Rig) -> dict[str, dict[str, Any]]:
    client = everturn_client(rig.client, EVERTURN.name)
    conversation = await client.start("clerk", work.opening(LONG_TURNS), id=f"long-{uuid4().hex[:8]}", keep_open=OPEN)
    await conversation.reply()
    other = Client(client.temporal, task_queue=EVERTURN.name, by="benchmark")  # it has seen nothing yet
    rows = {}
    for name, times in (("reply(), the client's first", 1), ("reply(), again", AGAIN)):
        with _counted() as sizes:
            began = time.process_time()
            for _ in range(times):
                await other.conversation(conversation.id).reply()
            spent = time.process_time() - began
        rows[name] = {"cpu_ms": spent * 1000 / times, "kb": sum(sizes) / 1000 / times}
    await conversation.close()
    return rows


async def _turns_with_many_calls(rig: Rig) -> dict[str, dict[str, Any]]:
    queue = f"calls-{uuid4().hex[:8]}"
    agent = Agent(
        "clerk",
        model=Model("scripted:demo", base_url=rig.base_url),
        tools=clerk.tools,
        limits=Limits(max_turns=CALL_TURNS + 1),
    )
    server = rig.client.service_client.config.target_host
    clients = [await Client.connect(server, task_queue=queue) for _ in range(2)]
    with _counted() as sizes:
        async with (
            Worker(clients[0], agents=[agent]) as first,
            Worker(clients[1], agents=[agent]) as second,
        ):
            said = work.opening(CALL_TURNS, calls=CALLS)
            conversation = await clients[0].start(agent, said, id=f"calls-{uuid4().hex[:8]}")
            await clients[0].temporal.get_workflow_handle(conversation.id).result()
            lacking = first.prefixes.misses + second.prefixes.misses
    turns = CALL_TURNS + 1
    return {
        f"a turn with {CALLS} calls, two workers": {
            "kb": sum(sizes) / 1000 / turns,
            "lacking": lacking / turns,
            "much": sum(size > MUCH_BYTES for size in sizes) / turns,
        }
    }


async def _cold_workers(rig: Rig) -> dict[str, dict[str, Any]]:
    client = everturn_client(rig.client, EVERTURN.name)
    names = [f"cold-{uuid4().hex[:8]}" for _ in range(COLD_CONVERSATIONS)]
    rows = {}

    async def say(name: str, said: str) -> None:
        handle = client.conversation(name)
        await handle.send(said)
        await handle.reply()

    async def all_say(said: str) -> None:
        await asyncio.gather(*(say(name, said) for name in names))

    async with rig.worker(EVERTURN):
        begun = [
            await client.start("clerk", work.opening(COLD_TURNS, unlike=name), id=name, keep_open=OPEN)
            for name in names
        ]
        await asyncio.gather(*(one.reply() for one in begun))
    async with rig.worker(EVERTURN) as worker:
        for kind in ("cold", "warm"):
            began = worker.cpu_seconds()
            await all_say("And?")
            rows[f"a conversation, {kind}"] = {"cpu_ms": (worker.cpu_seconds() - began) * 1000 / COLD_CONVERSATIONS}
        await asyncio.gather(*(client.conversation(name).close() for name in names))
    return rows
