"""Who takes part. A contestant is a worker process, and a way to start a conversation on it.

To add one: a file here with `async def serve(address: str)`, and a row below. One with dependencies of its own gets
another `python`; only that one imports its file, so what this process has to know stands in the row.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from temporalio.client import Client, WorkflowHandle

from benchmarks import work

Handle = WorkflowHandle[Any, Any]


async def by_type(client: Client, contestant: Contestant, conversation_id: str, turns: int) -> Handle:
    return await client.start_workflow(
        contestant.workflow, turns, id=conversation_id, task_queue=contestant.name, result_type=str
    )


async def by_everturn(client: Client, contestant: Contestant, conversation_id: str, turns: int) -> Handle:
    """With everturn's own client, which sets search attributes, summaries and a workflow task time-out."""
    everturn = _everturn_client(client, contestant.name)
    await everturn.start("clerk", work.opening(turns), id=conversation_id)
    return client.get_workflow_handle(conversation_id)


@cache
def _everturn_client(client: Client, task_queue: str) -> Any:
    from everturn import Client as EverturnClient
    from everturn.conversion import data_converter

    config: dict[str, Any] = {**client.config(), "data_converter": data_converter}
    return EverturnClient(Client(**config), task_queue=task_queue, by="benchmark")


@dataclass(frozen=True)
class Contestant:
    """`name` is its file, its task queue, and its row in the tables."""

    name: str
    workflow: str
    what: str
    """What it does, precisely: no ratio means anything without it."""
    start: Callable[[Client, Contestant, str, int], Awaitable[Handle]] = by_type
    python: str = sys.executable


FLOOR = Contestant(
    "floor",
    "Floor",
    "hand-written: two activities a turn with constant payloads, and no HTTP: the model activity answers by itself. "
    "Default converter, sandbox and worker options; no heartbeats, no summaries, no transcript.",
)
FLOOR_HTTP = Contestant(
    "floor_http",
    "FloorHttp",
    "the floor, but its model activity asks the scripted model over HTTP (httpx, one client, not streamed), with as "
    "many bytes as the transcript has by then, made up from constants. Temporal's payloads stay constant.",
)
NAIVE = Contestant(
    "naive",
    "Naive",
    "the loop as one writes it first: the whole transcript, as dicts, is the input of each model activity. "
    "The same HTTP as floor_http.",
)
EVERTURN = Contestant(
    "everturn",
    "Conversation",
    "everturn as `worker.py` hosts it: streamed replies, heartbeats, validated arguments, summaries and details in "
    "the Web UI, search attributes, a log line for each turn and each tool.",
    start=by_everturn,
)
ALL = (FLOOR, FLOOR_HTTP, NAIVE, EVERTURN)
