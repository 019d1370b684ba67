"""A thousand people who watch one conversation, on each lane beside Temporal: how late they are, and what it costs the
worker.

The model is that of `events`: 40 words a second, each the time at which it was written. **In one process**, as behind a
web server, they share a connection. **Connections**: each has one of its own to the worker, as if it were a thousand
processes; nobody should build that, and it is here to see what holds.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
from base64 import b64decode
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from benchmarks import work
from benchmarks.contestants import everturn_client
from benchmarks.measures import Column, Measured, Plan
from benchmarks.measures.events import EXPECTED_WORDS, HTTP, REDIS, hear, redis_server, ticker
from benchmarks.rig import Rig
from everturn.heartbeats.details import LiveAt, StreamedText
from everturn.history.reader import RunReading
from everturn.history.steps import TurnScheduled
from everturn.http.sse import EventDecoder
from everturn.live.lane import Lane, TurnKey, decode_text
from everturn.live.text_server import path_of

WATCHERS = 1000
LOOKING = 100
"""Of so many connections, one looks at what it reads: all are in this one process, which has no time for more."""

LONGEST_SECONDS = 120.0

_connections = count()

Words = list[float]
"""How late each word was, in milliseconds."""


@dataclass(frozen=True)
class Row:
    name: str
    contestant: Any
    watchers: int
    watch: Callable[[Lane, TurnKey, LiveAt | None], AsyncIterator[StreamedText]]


def _shared(lane: Lane, key: TurnKey, at: LiveAt | None) -> AsyncIterator[StreamedText]:
    return lane.follow(key, at)


async def _connected(lane: Lane, key: TurnKey, at: LiveAt | None) -> AsyncIterator[StreamedText]:
    assert at is not None
    host, _, port = at.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    path = path_of(key.namespace, key.run_id, key.activity_id)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: w\r\nAuthorization: Bearer {at.token}\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    if b" 200 " not in head:
        raise RuntimeError(head.decode())
    decoder, converter = EventDecoder(), lane._converter  # type: ignore[attr-defined]
    looks = next(_connections) % LOOKING == 0
    while data := await reader.read(65536):
        if not looks:
            continue
        for event in decoder.feed(data):
            if event.name != "end" and (streamed := await decode_text(converter, b64decode(event.data))):
                yield streamed
    writer.close()


ROWS = (
    Row("redis, one watcher", REDIS, 1, _shared),
    Row("redis, 1000 in one process", REDIS, WATCHERS, _shared),
    Row("http, one watcher", HTTP, 1, _shared),
    Row("http, 1000 in one process", HTTP, WATCHERS, _shared),
    Row("http, 1000 connections", HTTP, WATCHERS, _connected),
)


async def measure(rig: Rig, plan: Plan) -> Measured:  # noqa: ARG001
    rows = [row for row in ROWS if row.contestant is HTTP or shutil.which("redis-server")]
    found: dict[str, dict[str, Any]] = {}
    async with AsyncExitStack() as stack:
        ticking = replace(rig, base_url=stack.enter_context(ticker()))
        live = {HTTP.name: "http"}
        if len(rows) < len(ROWS):
            print("redis-server is not installed: without its rows.", file=sys.stderr)
        else:
            live[REDIS.name] = stack.enter_context(redis_server())
        for contestant in {row.contestant.name: row.contestant for row in rows}.values():
            hear(rig, contestant, live[contestant.name])
            more = {"EVERTURN_LIVE": live[contestant.name]}
            worker = await stack.enter_async_context(ticking.worker(contestant, warm=False, **more))
            for row in rows:
                if row.contestant is contestant:
                    found[row.name] = await _one(ticking, row, worker.process.pid)
    columns = [
        Column("median_ms", "word to watcher, median ms"),
        Column("p95_ms", "95th ms"),
        Column("cpu", "the worker's CPU, % of a core", ".0f"),
    ]
    return Measured(f"Watchers of one conversation: {EXPECTED_WORDS} words, 40 a second", columns, found)


async def _one(rig: Rig, row: Row, pid: int) -> dict[str, Any]:
    client = everturn_client(rig.client, row.contestant.name)
    conversation = await client.start("clerk", work.opening(1), stream=True)
    async with asyncio.timeout(LONGEST_SECONDS):
        key, at = await _turn(rig, conversation.id)
        before, started = _cpu_seconds(pid), time.monotonic()
        every = await asyncio.gather(*(_watch(row.watch(client.live, key, at)) for _ in range(row.watchers)))
        cpu, seconds = _cpu_seconds(pid) - before, time.monotonic() - started
        await conversation.outcome()
    words = [ms for one in every for ms in one]
    return {"median_ms": median(words), "p95_ms": quantiles(words, n=20)[-1], "cpu": 100 * cpu / seconds}


async def _turn(rig: Rig, conversation_id: str) -> tuple[TurnKey, LiveAt | None]:
    """The second one, which ticks."""
    handle = rig.client.get_workflow_handle(conversation_id)
    reader = RunReading(everturn_client(rig.client).temporal).reader
    while True:
        for event in (await handle.fetch_history()).events:
            step = await reader.read_event(event)
            if isinstance(step, TurnScheduled) and step.request.turn == 2:
                described = await handle.describe()
                return TurnKey(rig.client.namespace, described.run_id or "", step.activity_id), step.request.live_at
        await asyncio.sleep(0.005)


async def _watch(told: AsyncIterator[StreamedText]) -> Words:
    words, text = Words(), ""
    async with aclosing(told):  # type: ignore[type-var]
        async for streamed in told:
            now = time.time()
            text += "".join(piece for _, piece in streamed.after(streamed.at))
            *whole, text = text.split(" ")
            words += [(now - float(word)) * 1000 for word in whole]
            if len(words) >= EXPECTED_WORDS:
                break
    return words


def _cpu_seconds(pid: int) -> float:
    """Linux."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
