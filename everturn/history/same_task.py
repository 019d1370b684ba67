"""What a workflow task brought together with updates that the conversation took in it.

Temporal gives a conversation its updates before what its activities and timers brought, and writes both the other way
round: an accepted update is written after the end of the workflow task. So what was brought is taken back for it, and
follows it."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from types import NoneType
from typing import Any, Final

from everturn.history import steps
from everturn.history.decisions_by_history import Ruled
from everturn.plans import RunHandoff
from everturn.records import Record

MATTERS: Final = (steps.Expired, steps.ToolRunFailed, steps.TurnFailed, steps.DecisionChecked)
"""What an update before it may make void, or change."""

_NEVER_CHANGE: Final = (Record, str, int, float, frozenset, NoneType)


class SameTask:
    """The state before that was brought. `parts`: the objects that hold it, and that stay the same ones. `apart`: what
    they refer to and need no copy of."""

    def __init__(
        self, brought: Sequence[steps.Step], early: Sequence[steps.Sent], parts: Sequence[object], *apart: object
    ) -> None:
        self.brought = brought
        self.early = early
        self.ruled: Sequence[Ruled] = ()
        """The decisions by the policy that were taken in with it."""
        self._parts = parts
        same = {id(entry): entry for entry in (*parts, *apart)}
        self._before: list[dict[str, Any]] = [
            {name: copy_value(value, same) for name, value in vars(part).items()} for part in parts
        ]

    @staticmethod
    def is_needed(brought: Sequence[steps.Step]) -> bool:
        """Whether an update may change what follows from it. That is rare; a copy costs more than reading a step."""
        return any(isinstance(step, MATTERS) or _goes_on(step) for step in brought)

    def take_back(self) -> None:
        for part, before in zip(self._parts, self._before, strict=True):
            vars(part).clear()
            vars(part).update(before)


def copy_value(value: Any, same: dict[int, Any]) -> Any:
    """As deep as anything changes: records never do."""
    if isinstance(value, _NEVER_CHANGE) or id(value) in same:
        return value
    match value:
        case list():
            return [copy_value(entry, same) for entry in value]
        case dict():
            return {key: copy_value(entry, same) for key, entry in value.items()}
        case _:
            return deepcopy(value, same)


def _goes_on(step: steps.Step) -> bool:
    """A reply that puts another agent in charge, or that does not fit and is to be corrected: not if its turn was
    cancelled before it came."""
    if not isinstance(step, steps.TurnCompleted):
        return False
    return step.reply.output_problem is not None or any(isinstance(plan, RunHandoff) for plan in step.reply.plan)
