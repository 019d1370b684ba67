"""A model behind a rate limit: `python -m everturn.testing benchmarks/limited_script.py`.

MODEL_RATE calls a second, from a bucket of as many; beyond that 429, with MODEL_RETRY_AFTER. Each call is written to
MODEL_LOG: the time, and 1 if it was taken. A reply takes 0.2 to MODEL_SLOWEST seconds (1), and the first two of a
conversation call a tool.
"""

from __future__ import annotations

import os
import random
import threading
import time
from pathlib import Path
from typing import Any

from everturn.testing import Reply, call, fail, slow

RATE = float(os.environ["MODEL_RATE"])
RETRY_AFTER = os.environ["MODEL_RETRY_AFTER"]
SLOWEST = float(os.environ.get("MODEL_SLOWEST", "1"))
TURNS = 3

log = Path(os.environ["MODEL_LOG"]).open("a", buffering=1)  # noqa: SIM115 - for good
lock = threading.Lock()
bucket = {"level": RATE, "filled": time.monotonic()}


def script(messages: list[dict[str, Any]], _: dict[str, Any]) -> Reply:
    with lock:
        now = time.monotonic()
        level = min(RATE, bucket["level"] + (now - bucket["filled"]) * RATE)
        taken = level >= 1
        bucket.update(level=level - taken, filled=now)
        log.write(f"{now:.3f} {taken:d}\n")
    if not taken:
        return fail(429, "Rate limit reached", headers={"retry-after": RETRY_AFTER})
    turn = sum(message["role"] == "assistant" for message in messages)
    reply = call("look_up", {"number": turn}) if turn < TURNS - 1 else "Done."
    return slow(reply, seconds=random.uniform(0.2, SLOWEST))
