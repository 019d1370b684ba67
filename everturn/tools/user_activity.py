"""An activity of the user's own, or a Nexus operation, that serves a tool's calls: what is needed to schedule it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

from everturn.plans import RetryPlan


class RetryPolicyLike(Protocol):
    """temporalio's RetryPolicy: tools can be written without temporalio."""

    initial_interval: timedelta
    backoff_coefficient: float
    maximum_interval: timedelta | None
    maximum_attempts: int
    non_retryable_error_types: Sequence[str] | None

    def _validate(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class UserActivity:
    """The agent's worker hosts it if it has a function and no task queue of its own."""

    name: str
    """Its type, as its worker knows it."""
    task_queue: str | None = None
    """None: the agent's task queue."""
    by_position: tuple[str, ...] | None = None
    """It takes the arguments by position, in this order; None: all of them as one object."""
    heartbeat_timeout: timedelta | None = None
    retry: RetryPlan | None = None
    function: Callable[..., Any] | None = None

    @property
    def hosted(self) -> Callable[..., Any] | None:
        """The function that the agent's worker has to host; None if the activity runs elsewhere."""
        if self.task_queue is not None:
            return None
        return self.function


@dataclass(frozen=True, kw_only=True)
class NexusOperation:
    endpoint: str
    service: str
    name: str
    by_position: tuple[str, ...] | None = None
    """Its input is the argument of this name, or nothing if there is none; None: all of them as one object."""
