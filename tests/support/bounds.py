"""The bounds of a conversation, set so low that a test meets them.

A workflow is given facts and fetches none, so its bounds are constants of its code: they can't be passed in, and a new
one would be a change that old histories have to replay under. What tests set is here, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from everturn import state
from everturn.activities import hosted
from everturn.workflows import carry, controls, hosts, progress, room

Bounds = Callable[..., None]
"""`bounds(events=40)`: for as long as the test lasts, and while its histories are replayed."""

CONSTANTS: dict[str, tuple[ModuleType, str]] = {
    # When a run is continued as a new one.
    "events": (carry, "MAX_EVENTS"),
    "updates": (carry, "MAX_UPDATES"),
    # What it hands on.
    "packed_bytes": (carry, "MAX_PACKED_BYTES"),
    "open_bytes": (carry, "MAX_OPEN_BYTES"),
    "handed_bytes": (carry, "MAX_HANDED_BYTES"),
    "held_chars": (progress, "MAX_HELD_CHARS"),
    # What a fork or a revived conversation begins with.
    "begun_with_bytes": (state, "MAX_PACKED_AT_START_BYTES"),
    # What it takes in.
    "inbox_bytes": (controls, "MAX_INBOX_BYTES"),
    "refused_edits": (controls, "MOST_REFUSED_EDITS"),
    # How much a history may hold.
    "run_bytes": (room, "RUN_BYTES"),
    "task_bytes": (room, "TASK_BYTES"),
    "fair_bytes": (room, "FAIR_BYTES"),
    "least_bytes": (room, "LEAST_BYTES"),
    # How long it looks for a worker that has the agent, without a word and at all.
    "quietly": (hosted, "QUIETLY"),
    "host_patience": (hosts, "PATIENCE"),
}


def settable(monkeypatch: pytest.MonkeyPatch) -> Bounds:
    def bounds(**values: Any) -> None:
        for name, value in values.items():
            monkeypatch.setattr(*CONSTANTS[name], value)

    return bounds
