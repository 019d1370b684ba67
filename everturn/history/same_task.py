"""What a workflow task brought together with updates, which the conversation takes in first."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy, deepcopy
from functools import cache
from types import FunctionType, MethodType, NoneType
from typing import Any, Final

from everturn.agent_in_charge import InCharge
from everturn.agent_settings import Setting
from everturn.calls.pending_calls import PendingCall
from everturn.carryover import TakenIds
from everturn.history import steps
from everturn.history.decisions_by_history import Ruled
from everturn.prompts import KnownPrompts
from everturn.records import Record

_CHANGEABLE: Final = (
    steps.CallChecked,
    steps.CallExpired,
    steps.DecisionChecked,
    steps.ToolRunFailed,
    steps.TurnFailed,
)
"""What an update before it may make void, or change; and a rule that denies a call as soon as it is checked."""

_NEVER_CHANGE: Final = (
    FunctionType,
    MethodType,  # of objects that stay the same ones
    NoneType,
    PendingCall,
    Record,
    Setting,
    float,
    frozenset,
    int,
    steps.Step,
    str,
)


class SameTask:
    """What a workflow task brought together with updates that the conversation took in it, and the state before that.

    Temporal gives a conversation its updates before what its activities and timers brought, and writes both the other
    way round: an accepted update is written after the end of the workflow task. So what was brought is taken back for
    it, and follows it. `parts`: the objects that hold it, and that stay the same ones. `apart`: what they refer to and
    need no copy of."""

    def __init__(
        self, brought: Sequence[steps.Step], early: Sequence[steps.Sent], parts: Sequence[object], *apart: object
    ) -> None:
        self.brought = brought
        self.early = early
        self.ruled: Sequence[Ruled] = ()
        """The decisions by the policy that were taken in with it."""
        self.begun: list[steps.CheckScheduled | steps.ToolScheduled] = []
        """What the workflow task has begun since. Its updates come before that."""
        self._parts = parts
        same = {id(entry): entry for entry in (*parts, *apart)}
        self._before: list[dict[str, Any]] = [
            {name: _copy_value(value, same) for name, value in vars(part).items()} for part in parts
        ]

    @staticmethod
    def is_needed(brought: Sequence[steps.Step]) -> bool:
        """Whether an update may change what follows from it. That is rare; a copy costs more than reading a step."""
        return any(isinstance(step, _CHANGEABLE) or _goes_on(step) for step in brought)

    def take_back(self) -> None:
        for part, before in zip(self._parts, self._before, strict=True):
            vars(part).clear()
            vars(part).update(before)


@cache
def _never_changes(kind: type) -> bool:
    """Remembered, since a look at a record's class takes longer than a copy of most values."""
    return issubclass(kind, _NEVER_CHANGE)


def _copy_value(value: Any, copies: dict[int, Any]) -> Any:
    """As deep as anything changes: records never do."""
    if _never_changes(type(value)) or id(value) in copies:  # type: ignore[arg-type]
        return value
    match value:
        case list():
            return [_copy_value(entry, copies) for entry in value]
        case tuple():
            return tuple(_copy_value(entry, copies) for entry in value)
        case dict():
            return {key: _copy_value(entry, copies) for key, entry in value.items()}
        case set():
            return set(value)
        case InCharge() | KnownPrompts() | TakenIds():
            copied = copy(value)
            vars(copied).update({name: _copy_value(part, copies) for name, part in vars(value).items()})
            return copied
        case _:
            return deepcopy(value, copies)


def _goes_on(step: steps.Step) -> bool:
    """A reply with calls, on which rules decide, or that does not fit and is to be corrected: not if its turn was
    cancelled before it came. A summary, which no turn may follow if it was closed before."""
    if not isinstance(step, steps.TurnCompleted):
        return False
    return step.request.summarise or bool(step.reply.plan) or step.reply.output_problem is not None
