"""Who takes part. A contestant is a worker process, and a way to start a conversation on it.

To add one: a file here with `async def serve(address: str)`, and a row below. One with dependencies of its own gets
another `python`; only that one imports its file, so what this process has to know stands in the row.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from temporalio.client import Client, WorkflowHandle

from benchmarks import peers

Handle = WorkflowHandle[Any, Any]


async def by_type(client: Client, contestant: Contestant, conversation_id: str, said: str) -> Handle:
    return await client.start_workflow(
        contestant.workflow, said, id=conversation_id, task_queue=contestant.name, result_type=str
    )


async def by_everturn(client: Client, contestant: Contestant, conversation_id: str, said: str) -> Handle:
    """With everturn's own client, which sets search attributes, summaries and a workflow task time-out."""
    await everturn_client(client, contestant.name).start("clerk", said, id=conversation_id)
    return client.get_workflow_handle(conversation_id)


@cache
def everturn_client(client: Client, task_queue: str = "everturn") -> Any:
    from everturn import Client as EverturnClient
    from everturn.storage.data_converter import data_converter

    config: dict[str, Any] = {**client.config(), "data_converter": data_converter}
    return EverturnClient(Client(**config), task_queue=task_queue, by="benchmark")


@dataclass(frozen=True)
class Contestant:
    """`name` is its file, its task queue, and its row in the tables."""

    name: str
    workflow: str
    what: str
    """What it does, precisely: no ratio means anything without it."""
    start: Callable[[Client, Contestant, str, str], Awaitable[Handle]] = by_type
    python: str = sys.executable
    http: bool = True
    quadratic: bool = False
    """Its history grows with the square of the turns: it dies on the way to 200."""


FLOOR = Contestant(
    "floor",
    "Floor",
    "hand-written: two activities a turn with constant payloads, and no HTTP: the model activity answers by itself. "
    "Default converter, sandbox and worker options; no heartbeats, no summaries, no transcript.",
    http=False,
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
    quadratic=True,
)
EVERTURN = Contestant(
    "everturn",
    "Conversation",
    "everturn as `worker.py` hosts it where uvloop is not installed: streamed replies, heartbeats, validated "
    "arguments, summaries and details in the Web UI, search attributes, a log line for each turn and each tool.",
    start=by_everturn,
)
EVERTURN_LOCAL = replace(
    EVERTURN,
    name="everturn_local",
    what="everturn with EVERTURN_LOCAL_TOOLS=auto: once the worker has seen that the tool is quick, it runs within the "
    "conversation's workflow task. Measured in the latency alone.",
)
PYDANTIC_AI = Contestant(
    "pydantic_ai",
    "PydanticAi",
    f"pydantic-ai-slim {peers.version_of('pydantic-ai-slim')}: Agent with TemporalDurability and PydanticAIPlugin, as "
    "its documentation begins (no continue-as-new handler, which users may write); replies not streamed.",
    python=peers.PYTHON,
    quadratic=True,
)
OPENAI_AGENTS = Contestant(
    "openai_agents",
    "OpenaiAgents",
    f"openai-agents {peers.version_of('openai-agents')} in temporalio-openai-agents "
    f"{peers.version_of('temporalio-openai-agents')}: its plugin, activity_as_tool, Chat Completions, tracing off; "
    "replies not streamed.",
    python=peers.PYTHON,
    quadratic=True,
)
ALL = (FLOOR, FLOOR_HTTP, NAIVE, EVERTURN, PYDANTIC_AI, OPENAI_AGENTS)
