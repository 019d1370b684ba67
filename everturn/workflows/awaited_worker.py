"""Waits for a worker that hosts the agent or tool: silently for some seconds, then shown in the status."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError

from everturn.limits import MODEL_PATIENCE
from everturn.payloads import DecisionCheck, ModelRequest, ToolRequest
from everturn.state import State
from everturn.text.iso_times import iso_time
from everturn.workflows import tool_results
from everturn.workflows.eager_dispatch import by_the_queue
from everturn.workflows.stalls_and_pauses import StallsAndPauses

R = TypeVar("R")
Q = TypeVar("Q", ModelRequest, ToolRequest, DecisionCheck)

PATIENCE = MODEL_PATIENCE
"""For a worker that hosts the agent of a model turn. It is the default of Patience.model: what the agent says itself, a
worker that lacks it can't know. Only tries spend patience: time without any worker does not."""

FIRST_DELAY_SECONDS = 1.0
LONGEST_DELAY_SECONDS = 120.0

Schedule = Callable[[float | None], Awaitable[R]]
"""Schedules the activity, given its `hand_back_for`, and waits for its result."""


def with_hand_back_for(seconds: float | None, request: Q) -> Q:
    """The request with its `hand_back_for`."""
    if seconds is None:
        return request
    return request.model_copy(update={"hand_back_for": seconds})


def with_remaining_details(request: ToolRequest, begin: Callable[[ToolRequest], Awaitable[R]]) -> Schedule[R]:
    """Begins the call's activity. After one was handed back, the next one gets what its tries had left: a worker may
    have been lost in the middle of the call before one that lacks its tool had it."""

    async def start_with_details(seconds: float | None) -> R:
        nonlocal request
        try:
            return await begin(with_hand_back_for(seconds, request))
        except ActivityError as error:
            if tool_results.not_hosted(error) and (details := tool_results.left_by(error)):
                request = request.model_copy(update={"left": details})
            raise

    return start_with_details


class AwaitedWorker:
    def __init__(self, state: State, stalls_and_pauses: StallsAndPauses, on_change: Callable[[], None]) -> None:
        self._state = state
        self._stalls_and_pauses = stalls_and_pauses
        self._awaited: dict[str, tuple[str, str | None]] = {}
        """Cause and cure, by the activity that waits."""
        self._on_change = on_change

    @property
    def cause(self) -> str | None:
        """What the conversation waits for, in words; None if it does not."""
        return next((cause for cause, _ in self._awaited.values()), None)

    @property
    def cure(self) -> str | None:
        return next((cure for _, cure in self._awaited.values()), None)

    async def run_when_hosted(
        self,
        what: str,
        start: Schedule[R],
        *,
        patience: float | None = None,
        retried: bool = True,
        given_up: Callable[[], bool] = lambda: False,
    ) -> R:
        """What `start` brings once a worker hosts it. Raises the last ActivityError once patience is over.

        `patience`: in seconds; None: PATIENCE. `retried`: Temporal tries the activity again by itself, so that waiting
        costs no events. `given_up`: nobody wants it any more. Then nothing is begun.
        """
        try:
            return await start(None)
        except ActivityError as error:
            if not tool_results.not_hosted(error) or given_up():
                raise
            self._show_error(what, error)
            handed_back = error
        longest = PATIENCE.total_seconds() if patience is None else patience
        try:
            with by_the_queue():
                if retried:
                    return await start(longest)
                return await self._try_in_rounds(start, longest, handed_back, given_up)
        finally:
            del self._awaited[what]
            self._on_change()

    async def run_or_stall(
        self, what: str, start: Schedule[R], *, patience: float | None = None, retried: bool = True
    ) -> R:
        """The result of `start`, however long it takes. Once patience is over, the conversation is stalled, until a
        person resumes. Raises the last ActivityError if the conversation was closed."""
        while True:
            try:
                return await self.run_when_hosted(
                    what, start, patience=patience, retried=retried, given_up=lambda: self._state.closing
                )
            except ActivityError as error:
                if not tool_results.not_hosted(error) or self._state.closing:
                    raise
                await self._stalls_and_pauses.wait_while_stalled(
                    tool_results.cause_of(error), tool_results.detail_of(error, "cure")
                )
                if self._state.closing:
                    raise

    @contextmanager
    def show_waiting(self, what: str, cause: str, cure: str) -> Iterator[None]:
        """Shows that the conversation waits for a worker while the block runs, though no worker has handed anything
        back."""
        self._awaited[what] = (_with_time(cause), cure)
        self._on_change()
        try:
            yield
        finally:
            del self._awaited[what]
            self._on_change()

    async def _try_in_rounds(
        self, start: Schedule[R], patience: float, handed_back: ActivityError, given_up: Callable[[], bool]
    ) -> R:
        delay = FIRST_DELAY_SECONDS
        while True:
            pause = min(delay, max(patience, 0.001))
            with suppress(TimeoutError):
                await workflow.wait_condition(given_up, timeout=pause, timeout_summary="until a worker has the tool")
            if given_up():
                raise handed_back
            patience -= pause
            try:
                return await start(None if patience > 0 else 0.0)
            except ActivityError as error:
                if patience <= 0 or not tool_results.not_hosted(error):
                    raise
                handed_back = error
            delay = min(2 * delay, LONGEST_DELAY_SECONDS)

    def _show_error(self, what: str, error: ActivityError) -> None:
        self._awaited[what] = (_with_time(tool_results.cause_of(error)), tool_results.detail_of(error, "cure"))
        self._on_change()


def _with_time(cause: str) -> str:
    return f"{cause} Waiting for one since {iso_time(workflow.now())}."
