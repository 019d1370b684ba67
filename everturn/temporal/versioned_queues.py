"""Which task queues are polled by versioned workers of this process: conversations there never start eagerly.

An eager start hands the first step to a worker of the starter's own process. Temporal's server does so whichever
version that worker has: neither the current version nor the ramp is looked at, and a pinned conversation stays there.
"""

from __future__ import annotations

from typing import Final

_VERSIONED: Final[set[str]] = set()
"""A queue stays here when its worker has stopped: a start that is not eager only takes some milliseconds longer."""


def add_versioned_queue(task_queue: str) -> None:
    """A worker of this process, which belongs to a version of a deployment, is about to poll the queue."""
    _VERSIONED.add(task_queue)


def may_start_eagerly(task_queue: str) -> bool:
    """Whether any worker of this process may begin with a conversation of the queue."""
    return task_queue not in _VERSIONED
