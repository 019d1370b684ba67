"""How soon a client sees what a model writes, and what that costs in history.

Each word of the model is the time at which it was written (benchmarks/ticker.py): 40 a second. Interleaved as the
latency is. A conversation has one tool call, and then 100 words.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from statistics import median, quantiles
from typing import Any
from uuid import uuid4

from pydantic import SecretStr
from temporalio.contrib.workflow_streams import WorkflowStreamClient

from benchmarks import peers, work
from benchmarks.contestants import EVERTURN, OPENAI_AGENTS, PYDANTIC_AI, Contestant, everturn_client
from benchmarks.measures import Column, Measured, Plan
from benchmarks.rig import RESULTS, Rig, spawn, stop
from everturn.live.configured_lane import lane_of
from everturn.settings import Settings

WARM_UPS = 1
BUDGET_SECONDS = 90.0
"""No new round starts later."""
LONGEST_SECONDS = 60.0
EXPECTED_WORDS = 100


@dataclass(frozen=True)
class Sample:
    words_ms: list[float]
    """From the model's write of each word to the client's event."""
    steps_ms: list[float]
    """From the server's event to the client's, where the library tails the history."""
    history_events: int
    history_kb: float


Follow = Callable[[Rig, Contestant, str], AsyncIterator[tuple[str, float | None]]]
"""Starts a conversation; yields each piece of text that arrives, or an empty one and when its event was made."""


async def _everturn(rig: Rig, contestant: Contestant, conversation_id: str) -> AsyncIterator[tuple[str, float | None]]:
    client = everturn_client(rig.client, contestant.name)
    conversation = await client.start("clerk", work.opening(1), id=conversation_id, stream=True)
    started = time.time()
    async for event in conversation.events():
        if event.kind == "text_delta":
            yield event.text, None
        elif (made := datetime.fromisoformat(event.at).timestamp()) > started:
            yield "", made


def _streams(text_of: Callable[[Any], str]) -> Follow:
    async def follow(rig: Rig, contestant: Contestant, conversation_id: str) -> AsyncIterator[tuple[str, float | None]]:
        await contestant.start(rig.client, contestant, conversation_id, work.opening(1))
        stream = WorkflowStreamClient.create(rig.client, conversation_id)
        async for item in stream.subscribe(["events"]):
            if text := text_of(item.data):
                yield text, None

    return follow


def _of_responses(event: Any) -> str:
    return str(event["delta"]) if event.get("type") == "response.output_text.delta" else ""


def _of_parts(event: Any) -> str:
    part = event.get("part") or event.get("delta") or {}
    if event.get("event_kind") == "part_start" and part.get("part_kind") == "text":
        return str(part["content"])
    is_delta = event.get("event_kind") == "part_delta" and part.get("part_delta_kind") == "text"
    return str(part["content_delta"]) if is_delta else ""


STREAMS = Contestant(
    "workflow_streams",
    "Streams",
    "the naive loop, streamed with temporalio.contrib.workflow_streams: signals to the workflow, batched each 100 ms, "
    "and updates that wait for them.",
)
QUICK = replace(EVERTURN, name="everturn_quick", what="everturn with EVERTURN_STREAM_SECONDS=0.1.")
REDIS = replace(
    EVERTURN, name="everturn_redis", what="everturn with EVERTURN_LIVE=redis://…, a redis-server on the same machine."
)
HTTP = replace(EVERTURN, name="everturn_http", what="everturn with EVERTURN_LIVE=http: straight from the worker.")
FOLLOWS: dict[Contestant, Follow] = {
    EVERTURN: _everturn,
    QUICK: _everturn,
    REDIS: _everturn,
    HTTP: _everturn,
    STREAMS: _streams(str),
    replace(PYDANTIC_AI, name="pydantic_ai_streamed", workflow="PydanticAiStreamed"): _streams(_of_parts),
    replace(OPENAI_AGENTS, name="openai_agents_streamed", workflow="OpenaiAgentsStreamed"): _streams(_of_responses),
}


async def measure(rig: Rig, plan: Plan) -> Measured:
    peers_too = any(contestant.python == peers.PYTHON for contestant in plan.contestants)
    follows = {one: follow for one, follow in FOLLOWS.items() if one.python != peers.PYTHON or peers_too}
    if shutil.which("redis-server") is None:
        print("redis-server is not installed: without its row.", file=sys.stderr)
        del follows[REDIS]
    samples: dict[str, list[Sample]] = {one.name: [] for one in follows}
    until = time.monotonic() + BUDGET_SECONDS
    async with AsyncExitStack() as stack:
        ticking = replace(rig, base_url=stack.enter_context(ticker()))
        live: dict[str, str] = {}
        if REDIS in follows:
            live = {"EVERTURN_LIVE": stack.enter_context(redis_server())}
            hear(rig, REDIS, live["EVERTURN_LIVE"])
        hear(rig, HTTP, "http")
        workers = [
            await stack.enter_async_context(ticking.worker(one, warm=False, **(live if one is REDIS else {})))
            for one in follows
        ]
        for number in range(-WARM_UPS, plan.rounds):
            if time.monotonic() > until:
                break
            for worker in workers:
                worker.check()
                sample = await _one(ticking, worker.contestant, follows[worker.contestant])
                if number >= 0:
                    samples[worker.contestant.name].append(sample)
    columns = [
        Column("median_ms", "token to client, median ms", against=STREAMS.name),
        Column("p95_ms", "95th ms", against=STREAMS.name),
        Column("step_median_ms", "history event to client, median ms"),
        Column("step_p95_ms", "95th ms"),
        Column("history_events", "history events", ".0f", against=STREAMS.name),
        Column("history_kb", "history KB", against=STREAMS.name),
    ]
    rounds = len(samples[EVERTURN.name])
    title = f"Events: a streamed conversation of one call and {EXPECTED_WORDS} words ({rounds} rounds)"
    notes = [f"**{one.name}**: {one.what}" for one in (QUICK, REDIS, HTTP, STREAMS)]
    notes += ["The peers stream as their documentation sets it up, and flush each 100 ms. everturn beats each 200 ms."]
    return Measured(title, columns, {name: _row(own) for name, own in samples.items()}, notes)


@contextmanager
def ticker() -> Iterator[str]:
    process = spawn(sys.executable, "-m", "benchmarks.ticker", log=RESULTS / "ticker.log", stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().decode().strip()
    finally:
        stop(process)


@contextmanager
def redis_server() -> Iterator[str]:
    """Keeps nothing on disk."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = ("redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "")
    process = spawn(*command, log=RESULTS / "redis.log")
    try:
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        stop(process)


def hear(rig: Rig, contestant: Contestant, live: str) -> None:
    """Has the client of that row follow there, too. `live`: as EVERTURN_LIVE."""
    client = everturn_client(rig.client, contestant.name)
    settings = Settings(live=SecretStr(live))
    client._environment.__dict__["live"] = lane_of(settings, client.temporal.data_converter)


async def _one(rig: Rig, contestant: Contestant, follow: Follow) -> Sample:
    conversation_id = f"{contestant.name}-{uuid4().hex[:8]}"
    words, steps, rest = list[float](), list[float](), ""
    async with asyncio.timeout(LONGEST_SECONDS):
        async for text, made in follow(rig, contestant, conversation_id):
            now = time.time()
            if made is not None:
                steps.append((now - made) * 1000)
            *whole, rest = (rest + text).split(" ")
            words += [(now - float(word)) * 1000 for word in whole]
        handle = rig.client.get_workflow_handle(conversation_id)
        await handle.result()
    if len(words) != EXPECTED_WORDS:
        raise RuntimeError(f"{conversation_id} showed {len(words)} words of {EXPECTED_WORDS}")
    info = (await handle.describe()).raw_description.workflow_execution_info
    return Sample(words, steps, info.history_length, info.history_size_bytes / 1000)


def _row(samples: list[Sample]) -> dict[str, Any]:
    if not samples:
        return {}
    words = [ms for sample in samples for ms in sample.words_ms]
    steps = [ms for sample in samples for ms in sample.steps_ms]
    return {
        "median_ms": median(words),
        "p95_ms": quantiles(words, n=20)[-1],
        "step_median_ms": median(steps) if steps else None,
        "step_p95_ms": quantiles(steps, n=20)[-1] if steps else None,
        "history_events": median(sample.history_events for sample in samples),
        "history_kb": median(sample.history_kb for sample in samples),
    }
