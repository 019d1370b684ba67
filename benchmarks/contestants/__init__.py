"""Who takes part. A contestant is a worker process and a way to start a conversation on it.

To add one: a file here with `async def serve(address: str)`, and a row below. One with dependencies of its own gets
another `python`; its file is imported by that one only, so the row says all that this process has to know.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass


@dataclass(frozen=True)
class Contestant:
    """`name` is its file, its task queue, and its row in the tables. It is started like any workflow, by type."""

    name: str
    workflow: str
    what: str
    """What it does, precisely: no ratio means anything without it."""
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
)
ALL = (FLOOR, FLOOR_HTTP, NAIVE, EVERTURN)
