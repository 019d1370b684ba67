"""How much a worker does at the same time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from temporalio.worker import WorkerConfig

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


def payloads_at_once(config: WorkerConfig) -> int:
    """How many payloads of one workflow task are stored or fetched together, if there is an external storage. Without
    one there is nothing to wait for, and more than one would make an asyncio task of each payload, in each task."""
    if config["client"].data_converter.external_storage is None:
        return 1
    return config["max_workflow_task_external_storage_concurrency"]
