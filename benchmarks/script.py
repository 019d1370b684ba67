"""What the scripted model says: `python -m everturn.testing benchmarks/script.py`.

With MODEL_LOG in the environment, it writes a line for each request there: the time and the turn. With MODEL_HOLDS, it
takes minutes in every turn that this number divides, when it is asked for it first. With MODEL_TAKES, it takes so many
seconds for each reply; where that is streamed and asks for a call, text comes each fifth of a second meanwhile.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from benchmarks import work
from everturn.testing import Reply, call, slow
from everturn.testing.wire import CHUNK_CHARS

SLOW_SECONDS = 300.0

HOLDS = int(os.environ.get("MODEL_HOLDS", "0"))
TAKES = float(os.environ.get("MODEL_TAKES", "0"))
EACH_SECONDS = 0.2

seen: set[tuple[str, int]] = set()
log = Path(path).open("a", buffering=1) if (path := os.environ.get("MODEL_LOG")) else None  # noqa: SIM115 - for good


def script(messages: list[dict[str, Any]], body: dict[str, Any]) -> Reply:
    said: str = next(message["content"] for message in messages if message["role"] == "user")
    turn = sum(message["role"] == "assistant" for message in messages)
    if log:
        log.write(f"{time.time():.3f} {turn}\n")
    held = HOLDS and 0 < turn < work.turns_of(said) and turn % HOLDS == 0
    calls = [call("lookup", {"number": turn})] * work.calls_of(said)
    reply = calls if turn < work.turns_of(said) else work.LAST_WORDS
    if held or (work.SLOW in said and turn == work.SLOW_TURN):
        if (said, turn) in seen:
            return reply
        seen.add((said, turn))
        return slow(reply, seconds=SLOW_SECONDS)
    if not TAKES:
        return reply
    if isinstance(reply, str) or not body.get("stream"):
        return slow(reply, seconds=TAKES)
    return slow(["word " * round(TAKES / EACH_SECONDS * CHUNK_CHARS / len("word ")), *calls], per_chunk=EACH_SECONDS)
