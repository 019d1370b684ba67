"""Each try of an activity: what its log lines carry, and how long it has run by this process's own clock.

The server's clock and a worker's may be hours apart, so a time of one is never compared with a time of the other.
"""

from __future__ import annotations

import time
from contextvars import ContextVar
from datetime import datetime, timedelta
from math import inf
from typing import Any

from structlog.contextvars import bind_contextvars
from temporalio import activity
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from everturn.payloads import DecisionCheck, ModelRequest, ToolRequest

LAG_WINDOW_SECONDS = 300.0
"""Somebody may set a clock, so a measurement is forgotten after at most twice this time."""

LOGGED_FROM_SECONDS = 0.5
"""A shorter wait for a provider's limit is not in the log."""

_began: ContextVar[float] = ContextVar("began")
_left_out: ContextVar[float] = ContextVar("left_out", default=0.0)


def this_try() -> timedelta:
    """How long this try has run, not counting the time that it waited for a provider's rate limit."""
    now = time.monotonic()
    return timedelta(seconds=now - _began.get(now))


def leave_out(seconds: float) -> None:
    """Takes so many seconds off the time that this try has run: it only waited. The try's later log lines say it."""
    _began.set(_began.get(time.monotonic()) + seconds)
    _left_out.set(_left_out.get() + seconds)
    if _left_out.get() >= LOGGED_FROM_SECONDS:
        bind_contextvars(waited_seconds=round(_left_out.get(), 1))


class TaskDelays:
    """How long tasks wait in this worker before they begin. The server says by its clock when it handed over a task.
    The difference between the two clocks is taken from the quickest task of the last minutes."""

    def __init__(self) -> None:
        self._least = self._least_before = inf
        self._renewed_at = time.monotonic()

    def lag_of(self, started: datetime) -> float:
        """Seconds; infinite if there is no earlier task to compare with."""
        now = time.monotonic()
        if now - self._renewed_at > LAG_WINDOW_SECONDS:
            self._least_before = self._least
            self._least = inf
            self._renewed_at = now
        distance = now - started.timestamp()
        least = min(self._least, self._least_before)
        self._least = min(self._least, distance)
        if least == inf:
            return inf
        return distance - least


def bind_request(request: object) -> None:
    """Adds the turn, and the call if there is one, to all log lines of this activity, also to those of users' tools."""
    match request:
        case ModelRequest(turn=turn):
            bind_contextvars(turn=turn)
        case ToolRequest(turn=turn, call_id=call_id):
            bind_contextvars(turn=turn, call=call_id)
        case DecisionCheck(turn=turn, call=call):
            bind_contextvars(turn=turn, call=call.call_id)
        case _:
            pass


class Attempts(Interceptor):
    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002
        return _Attempt(next)


class _Attempt(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002
        # Each activity runs in its own asyncio task, so what is set here ends with that task.
        _began.set(time.monotonic())
        info = activity.info()
        bind_contextvars(conversation=info.workflow_id, attempt=info.attempt)
        bind_request(next(iter(input.args), None))
        return await self.next.execute_activity(input)
