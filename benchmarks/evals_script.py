"""The model of the measure of reruns: `python -m everturn.testing benchmarks/evals_script.py`.

Nine look-ups in two replies, then a payment. The model `careless` leaves one out, and pays once more. Each question is
a line in MODEL_LOG.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from everturn.testing import Reply, call

log = Path(os.environ["MODEL_LOG"]).open("a", buffering=1)  # noqa: SIM115 - for good


def script(messages: list[dict[str, Any]], body: dict[str, Any]) -> Reply:
    log.write("asked\n")
    turn = sum(message["role"] == "assistant" for message in messages)
    numbers = re.findall(r"Pay order (\d+)", str(messages))
    careless = body["model"] == "careless"
    look_ups = [call("look_up", {"order": numbers[0], "item": item}) for item in range(9)]
    payment = call("pay", {"order": numbers[0]})
    replies: list[Reply] = [look_ups[1 if careless else 0 : 4], look_ups[4:], payment]
    if careless:
        replies.append(payment)
    return replies[turn] if turn < len(replies) else "It is paid."
