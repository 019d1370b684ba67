"""Decisions by signal that come before their call waits for one.

In a workflow task, Temporal delivers signals before everything else. So a decision that arrives together with the reply
that it is about comes too early; after a reset, which applies signals again, it always does. And while one person's
decision is being checked by the agent's policy, another person's waits for the outcome of the check.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from temporalio import workflow

from everturn.workflows.message_dispatch import Later

MAX_HELD = 256


@dataclass(frozen=True)
class _EarlyDecision:
    call_id: str
    came_at: float
    """The time of the workflow task in which it came."""
    later: Later
    waits: bool
    """It waits for the check of another decision. If False, it is given up after its workflow task: it can't be meant
    for a call that nobody could know of when it was sent."""


class EarlyDecisions:
    def __init__(self) -> None:
        self._early: list[_EarlyDecision] = []

    def keep(self, call_id: str, later: Later, *, waits: bool) -> bool:
        self._give_up(lambda early: early.waits or early.came_at == workflow.time())
        if len(self._early) >= MAX_HELD:
            return False
        self._early.append(_EarlyDecision(call_id, workflow.time(), later, waits))
        return True

    def release(self, call_id: str, *, until: Callable[[], bool]) -> None:
        """The call waits now: tries its decisions in the order in which they came, `until` one was taken."""
        self._give_up(lambda early: early.call_id != call_id or early.waits or early.came_at == workflow.time())
        while not until() and (first := next((early for early in self._early if early.call_id == call_id), None)):
            self._early.remove(first)
            first.later("")
        self._early = [replace(early, waits=True) if early.call_id == call_id else early for early in self._early]

    @property
    def any_to_take(self) -> bool:
        """Whether one of them may yet be taken."""
        return any(early.waits or early.came_at == workflow.time() for early in self._early)

    def discard_late(self, call_id: str | None = None) -> None:
        """The decision on the call is final, or on all calls: other decisions on it are too late."""
        self._give_up(lambda early: call_id is not None and early.call_id != call_id)

    def _give_up(self, keeps: Callable[[_EarlyDecision], bool]) -> None:
        lost = [early for early in self._early if not keeps(early)]
        self._early = [early for early in self._early if keeps(early)]
        for early in lost:
            early.later(f"Call {early.call_id!r} was not waiting for it.")
