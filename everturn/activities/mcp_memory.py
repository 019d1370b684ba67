"""What one try of an MCP call leaves to the next: in its heartbeat, which outlives its worker."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

from temporalio import activity

from everturn.batching.records import CREATING
from everturn.lost_workers.poison_calls import details_left, leave_for_certain

TASK = "everturn_task"
SENT = "everturn_sent"


_planned: ContextVar[tuple[bool, bool]] = ContextVar("planned", default=(False, False))


def set_planned(*, once: bool, again: bool) -> None:
    """What the call's request says, for the rest of this activity."""
    _planned.set((once, again))


def take_left(before: Mapping[str, Any]) -> None:
    """What an earlier activity of the call left, unless a try of this one has left something since."""
    for name in before.keys() & {TASK, SENT}:
        details_left().setdefault(name, before[name])


def left_so_far() -> dict[str, Any]:
    """For the next activity of the call or the batch, if this one is handed back."""
    return {name: value for name, value in details_left().items() if name in (TASK, SENT, CREATING)}


class ThisTry:
    @property
    def once(self) -> bool:
        return _planned.get()[0]

    @property
    def again(self) -> bool:
        return _planned.get()[1]

    @property
    def task(self) -> str | None:
        task_id = details_left().get(TASK)
        if not isinstance(task_id, str):
            return None
        return task_id

    @property
    def sent(self) -> bool:
        return bool(details_left().get(SENT))

    @property
    def is_cancelled(self) -> bool:
        details = activity.cancellation_details()
        return bool(details and details.cancel_requested)

    async def keep(self, *, task: str | None = None) -> None:
        await leave_for_certain(**{SENT: True, TASK: task})
