"""What the scripted model says: `python -m everturn.testing benchmarks/script.py`.

With MODEL_LOG in the environment, it writes a line for each request there: the time and the turn. With MODEL_HOLDS, it
takes minutes in every turn that this number divides, when it is asked for it first.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from benchmarks import work
from everturn.testing import Reply, call, slow

SLOW_SECONDS = 300.0

HOLDS = int(os.environ.get("MODEL_HOLDS", "0"))

seen: set[tuple[str, int]] = set()
log = Path(path).open("a", buffering=1) if (path := os.environ.get("MODEL_LOG")) else None  # noqa: SIM115 - for good


def script(messages: list[dict[str, Any]]) -> Reply:
    said: str = next(message["content"] for message in messages if message["role"] == "user")
    turn = sum(message["role"] == "assistant" for message in messages)
    if log:
        log.write(f"{time.time():.3f} {turn}\n")
    held = HOLDS and 0 < turn < work.turns_of(said) and turn % HOLDS == 0
    reply = call("lookup", {"number": turn}) if turn < work.turns_of(said) else work.LAST_WORDS
    if held or (work.SLOW in said and turn == work.SLOW_TURN):
        if (said, turn) in seen:
            return reply
        seen.add((said, turn))
        return slow(reply, seconds=SLOW_SECONDS)
    return reply
