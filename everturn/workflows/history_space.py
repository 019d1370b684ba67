"""How much of a run's history is left, shared among the calls of a reply before they run.

Temporal terminates a run at 50 MB, and one reply can ask for 40 pictures. So each result is told beforehand how large
it may be; the activity cuts what is larger, and the model is told. A run of this size ends at the next turn boundary.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from temporalio import workflow

from everturn.sizes import (
    FAIR_BYTES,
    LEAST_RESULT_BYTES,
    LOCAL_BYTES,
    MAX_RESULT_BYTES,
    MOST_LOCAL,
    RUN_BYTES,
    SMALL_DECISION_BYTES,
    TASK_BYTES,
    TEMPORAL_PAYLOAD_BYTES,
)
from everturn.workflows.eviction_guard import OwnLoop


def left_in_run() -> int:
    return max(0, RUN_BYTES - workflow.info().get_current_history_size())


def too_full_for(size: int) -> str:
    """Why an update of this size can't be accepted; empty if it can. A signal's bytes are already in the history."""
    if size <= max(SMALL_DECISION_BYTES, left_in_run()) or workflow.current_update_info() is None:
        return ""
    return (
        f"It has {size:,} bytes as it is written into the history, but this run has only "
        f"{left_in_run():,} left until the next model turn. Send less, or a link."
    )


class HistorySpace:
    """The bytes that are promised to calls, until their results are in the history."""

    def __init__(self) -> None:
        self._run = workflow.info()
        self._own_loop = OwnLoop()
        self._promised: dict[str, int] = {}
        self._task = (-1, 0)
        """The current workflow task, by the history's length, and the bytes that it has to carry so far."""
        self._landed = (-1, 0)
        """The same of the results that it has brought, at most: the server may not have counted them yet."""

    @contextmanager
    def promised(self, call_id: str, size: int) -> Iterator[None]:
        self._promised[call_id] = size
        try:
            yield
        finally:
            del self._promised[call_id]
            if self._own_loop.is_running:
                self._landed = (self._run.get_current_history_length(), self._just_landed + size)

    async def allot_share(
        self, *, request: int, other_calls: int, max_bytes: int = MAX_RESULT_BYTES, local: bool = False
    ) -> int:
        """How many bytes a call's result may have, if so many `other_calls` want some too. Waits if there are
        too few now."""
        await self.wait_to_carry(request)
        if local:
            each = LOCAL_BYTES if other_calls < MOST_LOCAL else LEAST_RESULT_BYTES
            remaining = TASK_BYTES - self._in_task - other_calls * each
            share = max(LEAST_RESULT_BYTES, min(max_bytes, remaining, self._fair_share(request, other_calls)))
            self._count_carried(share)
            return share
        if self._promised and self._fair_share(request, other_calls) < FAIR_BYTES:
            await workflow.wait_condition(
                lambda: not self._promised or self._fair_share(request, other_calls) >= FAIR_BYTES
            )
        return max(LEAST_RESULT_BYTES, min(max_bytes, self._fair_share(request, other_calls)))

    async def allot_whole(self, *, request: int, other_calls: int) -> int:
        """The bytes of a result that nobody cuts before it is in the history: as many as Temporal takes. Waits until
        they are there; 0 if they will not be in this run."""
        while self._fair_share(request, other_calls) - self._just_landed < TEMPORAL_PAYLOAD_BYTES:
            if self._promised:
                promised = sum(self._promised.values())
                await workflow.wait_condition(lambda promised=promised: sum(self._promised.values()) < promised)  # type: ignore[misc]
            elif self._just_landed:
                await workflow.sleep(0.001, summary="the next workflow task")
            else:
                return 0
        return TEMPORAL_PAYLOAD_BYTES

    async def wait_to_carry(self, size: int) -> None:
        """Waits for a workflow task that can bring so many bytes more; they are to be sent right then."""
        while self._in_task and self._in_task + size > TASK_BYTES:
            await workflow.sleep(0.001, summary="the next workflow task")
        self._count_carried(size)

    def _fair_share(self, request: int, other_calls: int) -> int:
        return left_in_run() - sum(self._promised.values()) - request - other_calls * LEAST_RESULT_BYTES

    @property
    def _in_task(self) -> int:
        task, carried = self._task
        return carried if task == self._run.get_current_history_length() else 0

    @property
    def _just_landed(self) -> int:
        task, landed = self._landed
        return landed if task == self._run.get_current_history_length() else 0

    def _count_carried(self, size: int) -> None:
        self._task = (self._run.get_current_history_length(), self._in_task + size)
