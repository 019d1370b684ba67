"""How much a worker does at the same time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

ACTIVITIES_AT_ONCE: Final = 200
"""Model turns and tool calls at the same time; temporalio's own default is 100."""

WORKFLOW_TASKS_AT_ONCE: Final = 20
"""Conversations that take a step, or are replayed, at the same time; temporalio's own default is 100. They share one
interpreter, so more are no quicker. But a worker that begins with 60 conversations of 50 turns replays for 6 s: all at
once, none is done within the 5 s that the server waits for it, and each is replayed four times (decision 0040)."""


def tasks_at_once(config: Mapping[str, Any]) -> int | None:
    """For a worker with this configuration that does not say itself; None if its tuner does."""
    if config.get("tuner") is not None:
        return None
    return max(WORKFLOW_TASKS_AT_ONCE, config.get("max_concurrent_workflow_task_polls") or 0)
