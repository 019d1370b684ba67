"""Decisions by signal that come before their call waits for one.

Temporal hands over signals before all else that happened meanwhile. So one that comes in together with what makes its
call wait is there first: after a reset, which applies signals again, that is the rule. And while one person's decision
is being checked by the agent's policy, another's waits for what comes of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from temporalio import workflow

from everturn.workflows.commands import Later

MAX_HELD = 256


@dataclass(frozen=True)
class _Early:
    call_id: str
    at: float
    """The workflow task in which it came, by its time."""
    later: Later
    waits: bool
    """For what comes of another decision; else only for the end of its workflow task: what nobody could know of when it
    was sent is not its to decide."""


class Held:
    def __init__(self) -> None:
        self._early: list[_Early] = []

    def keep(self, call_id: str, later: Later, *, waits: bool) -> bool:
        self._give_up(lambda one: one.waits or one.at == workflow.time())
        if len(self._early) >= MAX_HELD:
            return False
        self._early.append(_Early(call_id, workflow.time(), later, waits))
        return True

    def release(self, call_id: str, *, until: Callable[[], bool]) -> None:
        """The call waits now: tries its decisions in the order in which they came, `until` one was taken."""
        self._give_up(lambda one: one.call_id != call_id or one.waits or one.at == workflow.time())
        while not until() and (first := next((one for one in self._early if one.call_id == call_id), None)):
            self._early.remove(first)
            first.later("")
        self._early = [replace(one, waits=True) if one.call_id == call_id else one for one in self._early]

    def settled(self, call_id: str | None = None) -> None:
        """The call is decided for certain, or all calls are: what came for it is too late."""
        self._give_up(lambda one: call_id is not None and one.call_id != call_id)

    def _give_up(self, keeps: Callable[[_Early], bool]) -> None:
        lost = [one for one in self._early if not keeps(one)]
        self._early = [one for one in self._early if keeps(one)]
        for one in lost:
            one.later(f"Call {one.call_id!r} did not wait for it.")
